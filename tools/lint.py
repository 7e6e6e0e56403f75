#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""lint.py - the rules of the tree that a program can check, and the guides it can measure.

    lint.py [--guides] [ROOT]

Rules fail: one line `file:line: sentence` each, exit status 1.  They are about layers (who may
include whom, who may talk to the kernel), names, and the licence line.  Guides are numbers that
good code tends to meet; what exceeds one is printed and nothing fails.  --guides prints all the
measurements.  CONTRIBUTING.md says what the rules are for.
"""
import functools
import os
import re
import statistics
import sys

import lint_maps

LAYERS = ("base", "contract", "opt", "out", "stack", "heap", "prof", "cpu", "leak", "guard", "control",
          "api")
# Folders whose every header is for everybody above; the others have a front door, <folder>/<folder>.h.
TOOLBOXES = ("base", "contract", "out")
# Side doors, and the folders they are for.
SIDE_DOORS = {
    "heap/counts.h": ("prof", "control", "api"),
    "heap/fast.h": ("api",),  # what malloc and free inline ...
    "heap/magazine.h": ("api",),  # ... with what they take from and give to
}
# The folders of the command, and what of the library they share.
CLI_LAYERS = ("common", "args", "profile", "read", "names", "live", "select", "view", "export",
              "run", "command")
CLI_MAY_INCLUDE = ("base", "contract")
KERNEL_HEADERS = re.compile(r"(sys/(?!types\.h)|linux/|asm/)")
KERNEL_CALLS = re.compile(
    r"(?<![\w.>])(syscall|mmap|munmap|mremap|madvise|mprotect|mlock|brk|sbrk|open|openat|close|read"
    r"|write|pread|pwrite|ioctl|fcntl|socket|memfd_create|clone|futex|nanosleep|clock_gettime"
    r"|sched_yield|sched_getcpu|sched_getaffinity|getrlimit|prctl|kill|tgkill|_exit)\s*\(")
SPDX = "SPDX-License-Identifier: MIT"
SOURCES = (".c", ".h", ".cc", ".def", ".py", ".sh", ".js")
TEXTS = SOURCES + (".md", ".txt", ".map", ".json", ".cmake", ".css", ".html")
# Relative to the root, because test/build/ holds sources.
SKIPPED_FOLDERS = re.compile(r"(\./)?(\.git|build|build-[^/]*)$|.*(__pycache__|node_modules)$")
# Names that a stranger expects in several folders.
REPEATED_NAMES = ("README.md", "CMakeLists.txt")
FILE_LINES, FILE_LINES_FAR = 600, 900
TEST_LINES, TEST_FUNCTION_LINES = 900, 100
FUNCTION_LINES, PARAMETERS, HEADERS_REACHED, IFS_PER_1000 = 70, 5, 30, 5
HEADERS_MEDIAN = 20  # a rule, for every folder
HEADER_SHARE, CMAKE_LINES, README_LINES = 15, 250, 150
# What the allocator relies on is said in code: fewer asserts than this in src/heap break a rule.
ASSERTS_PER_1000 = 20


class Source:
    """One file: its lines, the same with comments and strings blanked, and its includes."""

    def __init__(self, path, text):
        self.path = path
        self.text = text
        self.lines = self.text.splitlines()
        self.stem, self.ext = os.path.splitext(os.path.basename(path))
        self.is_c = self.ext in (".c", ".h", ".cc", ".def")
        code = blank_comments(self.text) if self.is_c else self.text
        self.code = code.splitlines()
        self.includes = []
        if self.is_c:
            for number, line in enumerate(blank_comments(self.text, strings=False).splitlines(), 1):
                match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
                if match:
                    self.includes.append((number, match.group(1) == '"', match.group(2)))

    @property
    def layer(self):
        """The folder under src/, or None."""
        parts = self.path.split("/")
        return parts[1] if parts[0] == "src" and len(parts) == 3 else None

    @functools.cached_property
    def words(self):
        """What is written in it, strings included and comments not."""
        code = blank_comments(self.text, strings=False) if self.is_c else self.text
        return set(re.findall(r"[A-Za-z_]\w*", code))

    @functools.cached_property
    def broken(self):
        """What breaks a rule whatever the other files are."""
        return [one for rule in OWN_RULES for one in rule(self)]

    @property
    def is_os(self):
        return self.layer == "base" and self.stem.startswith("os_")


def blank_comments(text, strings=True):
    """Replace comments, and strings unless told otherwise, by spaces; line numbers stay."""
    def blank(match):
        piece = match.group(0)
        if piece[0] in "\"'" and not strings:
            return piece
        return re.sub(r"[^\n]", " ", piece)
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text,
                  flags=re.S)


def read_tree(root):
    """Every text of the tree, by its path."""
    sources = {}
    for path in find_files(root):
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            sources[path] = Source(path, file.read())
    return sources


def find_files(root):
    for folder, folders, files in os.walk(root):
        here = os.path.relpath(folder, root)
        folders[:] = sorted(one for one in folders if not SKIPPED_FOLDERS.match(f"{here}/{one}"))
        for name in sorted(files):
            if name.endswith(TEXTS) or name in ("Makefile", "CMakeLists.txt"):
                yield os.path.relpath(os.path.join(folder, name), root)


# Rules.  Each yields (file, line, sentence).

def check_layers(source):
    """A file includes its own folder and those below."""
    if source.path.startswith("cli/"):
        yield from check_cli_layers(source)
    if source.layer is None:
        return
    for number, quoted, name in source.includes:
        folder = os.path.dirname(name)
        if not quoted or folder not in LAYERS:
            if quoted and "/" not in name:
                yield source.path, number, f'write the folder too: "{source.layer}/{name}"'
        elif source.layer not in LAYERS:
            yield source.path, number, f"src/{source.layer}/ is no layer"
        elif LAYERS.index(folder) > LAYERS.index(source.layer):
            yield source.path, number, f"{source.layer}/ lies below {folder}/, so it may not"


def is_open(path, layer):
    """May a file of this layer reach this header of src/?"""
    _, folder, file = path.split("/")
    return folder in (layer, *TOOLBOXES) or file.endswith(".def") or file == f"{folder}.h" \
        or layer in SIDE_DOORS.get(f"{folder}/{file}", ())


def check_doors(source, sources):
    """Of another folder a file reaches the doors and tables only, by whatever way."""
    for number, quoted, name in source.includes if source.layer else ():
        first = resolve(name, source, sources) if quoted else None
        if first is None:
            continue
        inner = [path for path in (first, *sorted(reach(sources[first], sources)))
                 if path.startswith("src/") and not is_open(path, source.layer)]
        if inner:
            verb = "is" if inner[0] == first else f"leads to {inner[0]},"
            yield source.path, number, f"{name} {verb} no door of its folder"


def check_cli_layers(source):
    """The same in the command, where every header is for everybody above."""
    own = source.path.split("/")[1]
    if source.is_c and own not in CLI_LAYERS:
        yield source.path, 1, f"cli/{own} is in no layer"
        return
    for number, quoted, name in source.includes:
        folder = os.path.dirname(name)
        if not quoted or folder in CLI_MAY_INCLUDE or name == "tally/tally.h":
            continue
        if not folder:
            yield source.path, number, f'write the folder too: "{own}/{name}"'
        elif folder not in CLI_LAYERS:
            yield source.path, number, f"cli/ may not include {name}"
        elif CLI_LAYERS.index(folder) > CLI_LAYERS.index(own):
            yield source.path, number, f"cli/{own}/ lies below {folder}/, so it may not"


def check_kernel(source):
    """Only the os_ files of base/ ask the kernel for anything."""
    if source.layer is None or source.is_os:
        return
    for number, quoted, name in source.includes:
        if not quoted and KERNEL_HEADERS.match(name):
            yield source.path, number, f"only src/base/os_linux*.c may include <{name}>"
    for number, line in enumerate(source.code, 1):
        match = KERNEL_CALLS.search(line)
        if match:
            yield source.path, number, f"{match.group(1)}() is a system call: use or extend os.h"


def own_header(source, sources):
    """The header that belongs to a source: x.h for x.c, and os.h for os_linux.c."""
    folder = os.path.dirname(source.path)
    names = [source.stem] + (["os"] if source.is_os else [])
    return next((n + ".h" for n in names if f"{folder}/{n}.h" in sources), None)


def check_include_order(source, sources):
    """Own header first, then <...>, then "..."; tables come where they are needed."""
    if not source.path.startswith(("src/", "cli/")) or source.ext not in (".c", ".h"):
        return
    headers = [one for one in source.includes if not one[2].endswith(".def")]
    own = own_header(source, sources) if source.ext == ".c" else None
    if own and headers:
        number, quoted, name = headers.pop(0)
        if not quoted or os.path.basename(name) != own:
            yield source.path, number, f"the first include is the file's own header, {own}"
    seen_quoted = False
    for number, quoted, name in headers:
        if seen_quoted and not quoted:
            yield source.path, number, f'<{name}> comes before the "..." includes'
        seen_quoted |= quoted


def check_cycles(source, sources):
    """No header reaches itself."""
    if source.ext != ".h" or not source.path.startswith(("src/", "cli/")):
        return
    reached = reach(source, sources)
    if source.path in reached:
        yield source.path, 1, "this header includes itself through others"


def check_licence(source):
    wants = source.ext in SOURCES + (".map",) or os.path.basename(source.path) in (
        "Makefile", "CMakeLists.txt")
    if wants and not source.path.startswith("test/fuzz/corpus/") \
            and not any(SPDX in line for line in source.lines[:3]):
        yield source.path, 1, f"'{SPDX}' is missing at the top"


def check_words(source):
    """What must not appear in code."""
    # The words are written apart here, or this file would break its own rule.
    todo = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b(?!.*#\d)")
    if source.ext in SOURCES:
        for number, line in enumerate(source.lines, 1):
            match = todo.search(line)
            if match and not source.path.endswith((".sh", ".py")):
                yield source.path, number, f"{match.group(1)} without an issue number (#12)"
            if line.rstrip() != line:
                yield source.path, number, "white space at the end of the line"
            if "\t" in line and source.is_c:
                yield source.path, number, "a tab: indent with four spaces"
    if source.layer is None and not source.path.startswith("cli/"):
        return
    rules = (
        (r"\btypedef\s+(struct|union)\b", "no typedef for structs: write `struct name`"),
        (r"\btypedef\b.*\b\w+_t\s*;", "a type of ours does not end in _t, which POSIX owns"),
        (r"\batomic_(thread|signal)_fence\b",
         "no stand-alone fence: the thread sanitizer cannot see it"),
    )
    for number, line in enumerate(source.code, 1):
        for pattern, sentence in rules:
            if re.search(pattern, line):
                yield source.path, number, sentence
        if source.layer not in (None, "api") and not source.is_os \
                and re.search(r"\berrno\s*=(?! saved;)[^=]", line):
            yield source.path, number, "errno is set in api/ only; others restore it: errno = saved"
    if source.layer:
        for number, _, name in source.includes:
            if name == "assert.h":
                yield source.path, number, "base/log.h defines assert; libc's allocates to print"


def check_guards(source):
    if source.ext != ".h":
        return
    once = "#pragma once" in source.text
    if source.path.startswith("src/") and not once:
        yield source.path, 1, "#pragma once is missing"
    if source.path.startswith("include/") and (once or "#ifndef" not in source.text):
        yield source.path, 1, "a public header has a classic guard"


def check_unique_names(sources):
    """A file name is unique in the repository, so that a name in a message is enough."""
    first = {}
    for path in sorted(sources):
        name = os.path.basename(path)
        if path.startswith(("include/compat/", "test/fuzz/corpus/")) or name in REPEATED_NAMES \
                or not name.endswith(SOURCES):
            continue
        if name in first:
            yield path, 1, f"the name is taken by {first[name]}"
        first.setdefault(name, path)


# Which list of a CMakeLists.txt names the files of a folder, and how a name becomes a file.
LISTS = (
    *((f"{layer.upper()}_SOURCES", f"src/{layer}/", (".c",)) for layer in LAYERS),
    ("CLI_SOURCES", "cli/", (".c",)),
    ("LIBGCC_SOURCES", "src/stack/", (".c",)),
    ("FILTER_SOURCES", "src/api/", (".c",)),
    ("DLOPEN_SOURCES", "src/api/", (".c",)),
    ("UNIT_TESTS CLI_UNIT_TESTS", "test/unit/test_", (".c", ".cc")),
    ("MODEL_TESTS", "test/model/model_", (".c",)),
    ("INSIDE_TESTS STRESS_TESTS", "test/stress/stress_", (".c",)),
    ("STRESS_SCRIPTS", "test/stress/", (".sh",)),
    ("MISUSE_TESTS", "test/misuse/misuse_", (".c",)),
    ("FAULT_TESTS", "test/fault/fault_", (".c",)),
    ("FAULT_SCRIPTS", "test/fault/", (".sh",)),
    ("FUZZ_TARGETS CLI_FUZZ_TARGETS", "test/fuzz/fuzz_", (".c",)),
    ("INTEGRATION_TESTS CXX_TESTS", "test/integration/test_", (".c", ".cc")),
    ("INTEGRATION_SCRIPTS", "test/integration/test_", (".sh",)),
    ("CLI_TESTS", "test/integration/cli/", (".sh",)),
    ("INTEROP_SCRIPTS", "test/interop/", (".sh",)),
    ("PROGRAM_SCRIPTS", "test/programs/", (".sh",)),
    ("BUILD_TESTS", "test/build/", (".sh",)),
    ("BENCHES", "bench/", (".c",)),
)
# What tests use and are not: sourced scripts, programs that a script compiles, and what drives the
# models and the fuzz targets.
NO_TESTS = re.compile(r"test/lib/|test/(\w+/)+program_\w+\.cc?$|test/build/flavour\.sh$"
                      r"|test/interop/(profiles|sites|exported|go)\.sh$"
                      r"|test/integration/(cli/fake_targets\.sh|control_target\.c)$"
                      r"|test/model/explore\.c$|test/fuzz/replay\.c$")


def read_lists(sources):
    """Yield (prefix, endings, names) for each row of LISTS."""
    text = "\n".join(re.sub(r"#.*", "", source.text) for path, source in sources.items()
                     if os.path.basename(path) == "CMakeLists.txt")
    for lists, prefix, endings in LISTS:
        names = []
        for one in lists.split():
            match = re.search(rf"^set\({one}\b([^)]*)\)", text, re.M)
            names += match.group(1).split() if match else []
        yield prefix, endings, names


def listed_files(sources):
    return {prefix + name + ending for prefix, endings, names in read_lists(sources)
            for name in names for ending in endings}


def check_listed(sources):
    """A test that no list names never runs, and nobody would notice."""
    if "CMakeLists.txt" not in sources:
        return
    listed = listed_files(sources)
    for path in sorted(sources):
        folders = ("src/", "cli/", "test/", "bench/")
        if path.startswith(folders) and path.endswith((".c", ".cc", ".sh")) \
                and not path.startswith("bench/app_") and not NO_TESTS.match(path) \
                and path not in listed:
            yield path, 1, "no list in a CMakeLists.txt names this file"


def check_test_lines(source):
    """Of a long test nobody knows what is in it; what its parts share is a header beside them."""
    if source.path.startswith("test/") and source.ext in SOURCES and len(source.lines) > TEST_LINES:
        yield source.path, TEST_LINES, (f"{len(source.lines)} lines, of {TEST_LINES} at most:"
                                        " split it by what is tested")


# Of one file alone, and of a file among the others.
OWN_RULES = (check_layers, check_kernel, check_licence, check_words, check_guards, check_test_lines)
RULES = (check_doors, check_include_order, check_cycles)


def medians(sources):
    """Yield (folder, median of the headers that its .c files reach)."""
    folders = {}
    for source in sources.values():
        if source.path.startswith(("src/", "cli/")) and source.ext == ".c":
            folders.setdefault(os.path.dirname(source.path), []).append(len(reach(source, sources)))
    for folder, reached in sorted(folders.items()):
        yield folder, statistics.median(reached)


def check_medians(sources):
    for folder, median in medians(sources):
        if median > HEADERS_MEDIAN:
            yield folder, 1, f"its .c files reach {median:g} headers (median; most {HEADERS_MEDIAN})"


def check_asserts(sources):
    """The invariants of the heap stand as asserts; base/log.h's, which release builds leave out."""
    heap = [s for s in sources.values() if s.layer == "heap" and s.ext in (".c", ".h")]
    asserts = sum(len(re.findall(r"\bassert\s*\(", line)) for s in heap for line in s.code)
    rate = share(asserts, sum(len(s.lines) for s in heap), 1000)
    if heap and rate < ASSERTS_PER_1000:
        yield "src/heap", 1, f"{rate:.1f} asserts per 1000 lines, {ASSERTS_PER_1000} at least"


# Guides.

def resolve(name, source, sources):
    for path in (f"src/{name}", f"cli/{name}", f"include/{name}",
                 f"{os.path.dirname(source.path)}/{name}"):
        if path in sources:
            return path
    return None


def reach(source, sources):
    """The project's headers that a file includes, directly or not."""
    reached, waiting = set(), [source]
    while waiting:
        current = waiting.pop()
        for _, _, name in current.includes:
            path = resolve(name, current, sources)
            if path and path not in reached:
                reached.add(path)
                waiting.append(sources[path])
    return reached


def functions(source):
    """Yield (name, first line, lines, parameters) of each function, as clang-format lays it out."""
    start, head = None, ""
    for number, line in enumerate(source.code, 1):
        if start is None:
            if re.match(r"[A-Za-z_]", line):
                head, head_line = line, number
            elif head:
                head += " " + line.strip()
            if head and line.rstrip().endswith("{"):
                match = re.search(r"(\w+)\s*\((.*)\)\s*\{$", head.rstrip())
                if match and not re.match(r"(struct|enum|union|static const)\b[^(]*=", head):
                    start, name, inside = head_line, match.group(1), match.group(2)
                head = ""
            elif head and line.rstrip().endswith(";"):
                head = ""
        elif line.startswith("}"):
            flat = re.sub(r"\([^()]*\)", "", inside)
            count = 0 if flat.strip() in ("", "void") else flat.count(",") + 1
            yield name, start, number - start + 1, count
            start, head = None, ""


def loose_variables(source):
    """Variables beside the one static struct g: no constants, and none of a single thread."""
    names, opened = [], ""
    for line in source.code:
        opened = line if re.match(r"\w.*\{$", line) else opened
        match = re.match(r"static [^()={]*?\b(\w+)(?:\[[^]]*\])*\s*(?:=|;)", line)
        start = line
        if match is None and opened.startswith("static"):
            match, start = re.match(r"\} (\w+)(?:\[[^]]*\])*\s*(?:=|;)", line), opened
        if match and not re.search(r"\bconst\b(?! char \*\w)|\b__thread\b", start):
            names.append(match.group(1))
    return [name for name in names if name != "g"] if len(names) > 1 else []


def foreign_names(source, sources):
    """Functions that leave their file without its name, its folder's or its header's at their beginning."""
    folder, parts = os.path.dirname(source.path), source.stem.split("_")
    stems = ["_".join(parts[:n]) for n in range(1, len(parts) + 1)]
    own = [stem + "_" for stem in stems if f"{folder}/{stem}.h" in sources]
    for name, line, _, _ in functions(source):
        head = source.code[max(line - 2, 0):line]
        if not any(re.match(r"(__\w+.*)?\bstatic\b", text) for text in head) and not name.startswith(
                (source.stem, source.layer + "_", "__", *own)):
            yield name


def measure_names(sources, code):
    """Guides on what CONTRIBUTING.md says about variables and names."""
    library = [s for s in code if s.layer and s.ext == ".c"]
    loose = {s.path: loose_variables(s) for s in library}
    # Names of api/ are the program's, and those behind rows of ctl.def the rows'.
    foreign = {s.path: list(foreign_names(s, sources)) for s in library
               if s.layer != "api" and not s.stem.startswith("ctl_")}
    for what, found in (("variables beside the one static g of their file", loose),
                        ("functions not called <file>_<verb>", foreign)):
        text = "; ".join(f"{path}: {', '.join(names)}" for path, names in found.items() if names)
        yield bool(text), f"{sum(map(len, found.values()))} {what}: {text}"


def share(part, whole, per):
    return part * per / whole if whole else 0


def measure(sources):
    """Yield (True when a guide is exceeded, text)."""
    code = [s for s in sources.values()
            if s.path.startswith(("src/", "cli/")) and s.ext in (".c", ".h")]
    lengths = []
    for source in code:
        if len(source.lines) > FILE_LINES:
            far = "; look for the second file" if len(source.lines) > FILE_LINES_FAR else ""
            yield True, f"{source.path}: {len(source.lines)} lines (guide {FILE_LINES}){far}"
        for name, line, length, parameters in functions(source):
            lengths.append(length)
            if length > FUNCTION_LINES:
                yield True, (f"{source.path}:{line}: {name} has {length} lines"
                             f" (guide {FUNCTION_LINES})")
            if parameters > PARAMETERS:
                yield True, (f"{source.path}:{line}: {name} has {parameters} parameters"
                             f" (guide {PARAMETERS})")
        reached = len(reach(source, sources)) if source.ext == ".c" else 0
        if reached > HEADERS_REACHED:
            yield True, f"{source.path}: reaches {reached} headers (guide {HEADERS_REACHED})"
    for source in sources.values():
        if source.path.startswith("test/") and source.is_c:
            for name, line, length, _ in functions(source):
                if length > TEST_FUNCTION_LINES:
                    yield True, (f"{source.path}:{line}: {name} has {length} lines"
                                 f" (guide {TEST_FUNCTION_LINES} in a test)")
    if lengths:
        lengths.sort()
        median, ninth = statistics.median(lengths), lengths[len(lengths) * 9 // 10]
        yield median > 10 or ninth > 30, (
            f"{len(lengths)} functions: median {median:g} lines (guide 10), nine in ten within"
            f" {ninth} (guide 30), longest {lengths[-1]} (guide {FUNCTION_LINES})")
    for folder, median in medians(sources):
        yield False, f"{folder}: its .c files reach {median:g} headers (median; most {HEADERS_MEDIAN})"
    yield from measure_names(sources, code)
    yield from measure_totals(sources, code)


def measure_totals(sources, code):
    lines = sum(len(s.lines) for s in code)
    ifs = sum(1 for s in code for text in s.code if re.match(r"\s*#\s*if", text))
    rate = share(ifs, lines, 1000)
    yield rate > IFS_PER_1000, f"{rate:.1f} #if per 1000 lines (guide {IFS_PER_1000})"
    library = [s for s in code if s.layer]
    headers = share(sum(len(s.lines) for s in library if s.ext == ".h"),
                    sum(len(s.lines) for s in library), 100)
    yield headers > HEADER_SHARE, f"headers are {headers:.0f}% of src/ (guide {HEADER_SHARE}%)"
    if "CMakeLists.txt" in sources:
        for prefix, endings, names in read_lists(sources):
            absent = [name for name in names
                      if not any(prefix + name + ending in sources for ending in endings)]
            if absent:
                yield True, f"CMakeLists.txt names {prefix}*, but there is no {', '.join(absent)}"
    for path, source in sources.items():
        if os.path.basename(path) == "CMakeLists.txt" or path == "README.md":
            most = README_LINES if path == "README.md" else CMAKE_LINES
            yield len(source.lines) > most, f"{path}: {len(source.lines)} lines (guide {most})"


def check(sources):
    """What is broken, as (file, line, sentence)."""
    broken = [*check_unique_names(sources), *check_listed(sources), *check_medians(sources),
              *check_asserts(sources),
              *lint_maps.check(sources, {"src/": LAYERS, "cli/": CLI_LAYERS})]
    for source in sources.values():
        broken.extend(source.broken)
        for rule in RULES:
            broken.extend(rule(source, sources))
    return sorted(broken)


def main():
    arguments = [word for word in sys.argv[1:] if word != "--guides"]
    default = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sources = read_tree(arguments[0] if arguments else default)
    broken = check(sources)
    for exceeded, text in measure(sources):
        if exceeded or "--guides" in sys.argv:
            print(f"guide: {text}" if exceeded else f"fine:  {text}")
    for path, line, sentence in broken:
        print(f"{path}:{line}: {sentence}")
    if broken:
        print(f"{len(broken)} rules broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
