# SPDX-License-Identifier: MIT
"""lint_maps.py - the rules that keep maps and documents true; lint.py runs them.

A document may leave things out, but what it names exists: files, functions, options, constants.
Maps leave nothing out: one line for each file of their folder.  Layers and lock ranks stand in
several places for readers and in one for the machine; all of these agree.

Only what stands in `backquotes` or in a drawing is checked.  Each rule yields (file, line,
sentence); test/build/lint.sh shows for each that it fails.
"""
import fnmatch
import os
import re

MAPS = {"src/": "src/README.md", "cli/": "cli/README.md"}
# Where every name in backquotes exists.
NAMING = ("CONTRIBUTING.md", "docs/design.md", "test/README.md", *MAPS.values())
FILE_LIST = "## One line per file"
# A file, perhaps with folders, perhaps as a pattern: x.c, heap/x.h, x.[ch], os_*.c.
FILE = r"[\w./*-]*\w[\w*-]*\.(?:c|h|cc|def|py|sh|js|map|md|txt|\[ch\])(?!\w)"
# What only a program writes: snake_case or CONSTANTS, with members and parentheses or without.
NAME = r"(?:struct |enum )?[A-Za-z]\w*(?:\.\w+)*(?:\(\))?"
# Whose words count as existing: what a reader can look up.  Scripts of tests make names up.
CODE = ("src/", "cli/", "include/", "tools/", "bench/", "test/lib/", "Makefile", "CMakeLists.txt")


class Index:
    """What can be looked up: files, and the words of the code."""

    def __init__(self, sources):
        self.sources = sources
        self.by_name = {}
        for path in sources:
            self.by_name.setdefault(os.path.basename(path), []).append(path)
        code = [source for path, source in sources.items()
                if (path.startswith(CODE) and source.ext != ".md")
                or (path.startswith("test/") and (source.is_c or path.endswith("CMakeLists.txt")))]
        self.all = set().union(*(source.words for source in code))
        self.all |= {source.stem for source in sources.values()}
        # A system call is written SYS_<name>.
        self.all |= {word[4:] for word in self.all if word.startswith("SYS_")}

    def find(self, name, folder=""):
        """The files that a name in a document means: any in the folder whose path ends with it."""
        if not re.search(r"[*[]", name):
            return [path for path in self.by_name.get(os.path.basename(name), ())
                    if path.startswith(folder) and f"/{path}".endswith(f"/{name}")]
        pattern = re.compile("(.*/)?" + fnmatch.translate(name))
        return [path for path in self.sources if path.startswith(folder) and pattern.match(path)]

    def defines(self, name, file):
        """Whether a function, or a row of a table, has this name in the file."""
        source = self.sources[file]
        if source.ext not in (".c", ".h"):
            return name in source.words
        return re.search(rf"^\w[^;=]*\b{name}\(", "\n".join(source.code), re.M) is not None

    def has(self, name, files=None):
        """Whether each part of a name that looks like code is a word of these files, or of any."""
        known = self.all if files is None else set().union(*(self.sources[f].words for f in files))
        parts = re.sub(r"^(struct|enum) |\(\)$", "", name).split(".")
        certain = name.endswith("()") or name.startswith(("struct ", "enum ")) or files
        return all(part in known for part in parts if certain or "_" in part.strip("_"))


def blocks(source):
    """Yield (line number, line, True when it is part of a drawing)."""
    drawn = False
    for number, line in enumerate(source.lines, 1):
        if line.startswith("```"):
            drawn = not drawn
        else:
            yield number, line, drawn


def section(source, heading):
    """The lines below a heading, up to the next of its rank, as (number, line)."""
    inside, rank = False, heading.split(" ")[0] + " "
    for number, line in enumerate(source.lines, 1):
        if line.startswith(rank):
            inside = line == heading
        elif inside:
            yield number, line


def rows(source, heading):
    """Yield (number, cells) of the tables below a heading, without the rule under their tops."""
    for number, line in section(source, heading):
        if line.startswith("|") and not re.match(r"\|[-|: ]+$", line):
            yield number, [cell.strip() for cell in line.strip("|").split("|")]


# Rules.

def check_file_list(index):
    """A map has each file of its folder once, below the name of the folder that holds it."""
    for folder, path in MAPS.items():
        if path not in index.sources:
            continue
        files = [f for f in index.sources if f.startswith(folder)
                 and os.path.basename(f) not in ("README.md", "CMakeLists.txt")]
        seen, heading = {}, ""
        for number, cells in rows(index.sources[path], FILE_LIST):
            title = re.match(r"\*\*([\w/]+)/\*\*$", cells[0])
            heading = f"{folder}{title.group(1)}/" if title else \
                folder if cells[0].startswith("**") else heading
            for name in re.findall(r"`([^`]+)`", cells[0]):
                found = index.find(name, folder)
                if not found:
                    yield path, number, f"there is no file {name} in {folder}"
                for file in found:
                    yield from judge_listed(path, number, file, heading, seen)
        for file in sorted(set(files) - set(seen)):
            yield path, 1, f"'{FILE_LIST[3:]}' does not have {file}"


def judge_listed(path, number, file, heading, seen):
    if file in seen:
        yield path, number, f"{file} stands in line {seen[file]} already"
    elif not file.startswith(heading):
        yield path, number, f"{file} does not lie in {heading}"
    seen[file] = number


def check_names(index):
    """Files and names of code that a document mentions exist; `file`: `name` means in that file."""
    for path in NAMING:
        if path not in index.sources:
            continue
        for number, line, drawn in blocks(index.sources[path]):
            judge = judge_drawing if drawn else judge_prose
            for sentence in judge(index, line):
                yield path, number, sentence


def judge_prose(index, line):
    files, link = None, ": "
    for before, token in re.findall(r"([^`]*)`([^`]*)`", line):
        if re.fullmatch(FILE, token) and token[0] not in "/*":
            files, link = index.find(token), ": "
            if not files:
                yield f"there is no file {token}"
        elif re.fullmatch(NAME, token):
            files, link = files if before == link else None, ", "
            if not index.has(token, files):
                yield f"there is no {token}" + (f" in {', '.join(files)}" if files else "")
        else:
            files = None


def judge_drawing(index, line):
    """In a drawing all files and snake_case names exist; a name right behind a file is defined there."""
    files, end = None, 0
    for match in re.finditer(rf"{FILE}|[A-Za-z]\w*_\w+|\w+", line):
        token = match.group(0)
        is_column = "_" in token or re.match(r"  |$", line[match.end():])
        follows = files and is_column and re.fullmatch(r"  +", line[end:match.start()])
        if re.fullmatch(FILE, token):
            files, end = index.find(token), match.end()
            if not files:
                yield f"there is no file {token}"
        elif follows:
            if not any(index.defines(token, file) for file in files):
                yield f"{token} is not defined in {', '.join(files)}"
            files = None
        elif "_" in token and not index.has(token):
            yield f"there is no {token}"


def check_layers_agree(index, layers):
    """CONTRIBUTING.md and the pictures of the maps show the layers that lint.py enforces."""
    for folder, order in layers.items():
        chain = " < ".join(order)
        source = index.sources.get("CONTRIBUTING.md")
        if source and f"`{chain}`" not in re.sub(r"\s+", " ", source.text):
            yield source.path, 1, f"the layers of {folder} are not said as lint.py has them: {chain}"
        source = index.sources.get(MAPS[folder])
        if source:
            first = [line.split()[0].rstrip("/") for _, line, drawn in blocks(source)
                     if drawn and re.match(r" \w", line)]
            drawn = [word for word in first if index.find(f"{folder}{word}/*")]
            if drawn != list(reversed(order)):
                yield source.path, 1, f"the picture's layers are not, from below, {chain}"


def check_locks(index):
    """The table of locks has the ranks of enum lock_rank, in their order."""
    header, text = (index.sources.get(f) for f in ("src/base/lock.h", "docs/design.md"))
    if not header or not text:
        return
    body = re.search(r"enum lock_rank \{(.*?)\};", header.text, re.S)
    ranks = re.findall(r"\bRANK_(\w+)", body.group(1)) if body else []
    table = [(number, cells[0]) for number, cells in rows(text, "## Lock order")][1:]
    names = [name for _, name in table]
    for number, name in table:
        if name not in ranks:
            yield text.path, number, f"enum lock_rank has no RANK_{name}"
    for rank in ranks:
        if rank not in names:
            yield text.path, 1, f"the table of locks lacks {rank}"
    if sorted(names) == sorted(ranks) and names != ranks:
        yield text.path, table[0][0], f"the order of locks is {', '.join(ranks)}"


def check(sources, layers):
    """All rules; layers is {"src/": from the lowest up, ...}."""
    index = Index(sources)
    yield from check_file_list(index)
    yield from check_names(index)
    yield from check_layers_agree(index, layers)
    yield from check_locks(index)
