# SPDX-License-Identifier: MIT
"""lint_breaks.py - breaks the tree in one way at a time, and sees the rule of tools/lint.py fail.

The tree is changed in memory only.  A break that finds nothing to change fails as well: choose
another place.
"""
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import lint  # noqa: E402

TREE = lint.read_tree(ROOT)


class Break:
    """The tree with a change."""

    def __init__(self):
        self.sources = dict(TREE)

    def write(self, path, text):
        self.sources[path] = lint.Source(path, text)
        return self

    def swap(self, path, old, new):
        text = self.sources[path].text
        assert old in text, f"{path} has no {old!r} to break"
        return self.write(path, text.replace(old, new, 1))

    def append(self, path, text):
        return self.write(path, self.sources[path].text + text)

    def remove(self, path):
        del self.sources[path]
        return self

    def line(self, path, start):
        """The first line that begins with this."""
        return next(line for line in self.sources[path].lines if line.startswith(start)) + "\n"


C = "/* SPDX-License-Identifier: MIT */\n"


class Rules(unittest.TestCase):
    def sees(self, change, path, *sentences):
        """After the change lint says these sentences about this file."""
        found = [sentence for where, _, sentence in lint.check(change.sources) if where == path]
        for sentence in sentences:
            self.assertTrue(any(sentence in one for one in found),
                            f"lint does not say {sentence!r} of {path} but {found}")

    def test_the_tree_is_clean(self):
        self.assertEqual(lint.check(TREE), [])

    # Source rules.

    def test_a_file_includes_no_layer_above(self):
        self.sees(Break().append("src/base/fmt.c", '#include "heap/heap.h"\n'), "src/base/fmt.c",
                  "base/ lies below heap/")

    def test_of_another_folder_only_doors_are_included(self):
        self.sees(Break().append("src/control/ctl.c", '#include "heap/slab.h"\n'), "src/control/ctl.c",
                  "heap/slab.h is no door")
        self.sees(Break().append("src/control/ctl.c", '#include "heap/fast.h"\n'), "src/control/ctl.c",
                  "heap/fast.h is no door")

    def test_no_way_leads_through_a_door_to_an_inner_header(self):
        change = Break().append("src/prof/prof.h", '#include "prof/record.h"\n')
        self.sees(change, "src/leak/leak.c", "prof/prof.h leads to src/prof/context.h, no door")
        change = Break().append("src/heap/heap.h", '#include "heap/pairing.h"\n')
        self.sees(change, "src/prof/sample.c", "leads to src/heap/pairing.h")

    def test_a_folder_reaches_few_headers(self):
        change = Break()
        most = "".join(f'#include "{path[4:]}"\n' for path in TREE
                       if path.startswith(("src/base/", "src/contract/")) and path.endswith(".h"))
        for path in TREE:
            if path.startswith("src/opt/") and path.endswith(".c"):
                change.append(path, most)
        self.sees(change, "src/opt", "its .c files reach")

    def test_a_test_is_not_too_long(self):
        self.sees(Break().append("test/unit/test_bits.c", "\n" * 901), "test/unit/test_bits.c", "at most")

    def test_the_command_includes_nothing_of_the_heap(self):
        self.sees(Break().append("cli/command/main.c", '#include "heap/heap.h"\n'), "cli/command/main.c",
                  "cli/ may not include heap/heap.h")

    def test_folders_of_the_command_are_layers(self):
        self.sees(Break().append("cli/read/read.c", '#include "view/view.h"\n'), "cli/read/read.c",
                  "cli/read/ lies below view/")
        self.sees(Break().write("cli/attic/old.c", C), "cli/attic/old.c", "is in no layer")

    def test_only_os_files_call_the_kernel(self):
        self.sees(Break().append("src/heap/slab.c", "#include <sys/mman.h>\n"), "src/heap/slab.c",
                  "may include <sys/mman.h>")
        self.sees(Break().append("src/heap/slab.c", "void f(void) {\n    munmap(0, 1);\n}\n"),
                  "src/heap/slab.c", "munmap() is a system call")

    def test_includes_have_an_order(self):
        self.sees(Break().swap("src/heap/slab.c", '#include "heap/slab.h"\n', ""), "src/heap/slab.c",
                  "the first include is the file's own header")
        self.sees(Break().append("src/heap/slab.c", "#include <stdlib.h>\n"), "src/heap/slab.c",
                  'comes before the "..." includes')

    def test_no_header_includes_itself(self):
        self.sees(Break().append("src/base/bits.h", '#include "base/bits.h"\n'), "src/base/bits.h",
                  "includes itself")

    def test_a_file_has_its_licence(self):
        self.sees(Break().swap("src/heap/slab.c", "SPDX-License", "SPD-License"), "src/heap/slab.c",
                  "is missing at the top")

    def test_words_that_may_not_appear(self):
        wrong = ((f"/* {'TO' 'DO'}: later */\n", "without an issue number"),
                 ("int x; \n", "white space at the end"),
                 ("\tint x;\n", "a tab"),
                 ("typedef struct x y;\n", "no typedef for structs"),
                 ("typedef int x_t;\n", "does not end in _t"),
                 ("#include <assert.h>\n", "base/log.h defines assert"),
                 ("void f(void) {\n    errno = 1;\n}\n", "errno is set in api/ only"),
                 ("    atomic_thread_fence(memory_order_acquire);\n", "no stand-alone fence"))
        self.sees(Break().append("src/heap/slab.c", "".join(text for text, _ in wrong)),
                  "src/heap/slab.c", *(sentence for _, sentence in wrong))

    def test_headers_have_their_guards(self):
        self.sees(Break().swap("src/heap/slab.h", "#pragma once", ""), "src/heap/slab.h",
                  "#pragma once is missing")
        self.sees(Break().append("include/tally/tally.h", "#pragma once\n"), "include/tally/tally.h",
                  "classic guard")

    def test_the_heap_has_its_asserts(self):
        change = Break()
        for path, source in TREE.items():
            if source.layer == "heap":
                change.write(path, source.text.replace("assert(", "(void)("))
        self.sees(change, "src/heap", "0.0 asserts per 1000 lines, 20 at least")

    def test_a_file_name_is_unique(self):
        self.sees(Break().write("test/lib/slab.h", C), "test/lib/slab.h", "the name is taken")

    def test_a_test_is_listed(self):
        self.sees(Break().write("test/unit/test_forgotten.c", C), "test/unit/test_forgotten.c",
                  "no list in a CMakeLists.txt")

    def test_a_test_is_not_too_long(self):
        self.sees(Break().append("test/unit/test_slab.c", "\n" * 900), "test/unit/test_slab.c",
                  "split it by what is tested")

    # Maps.

    def test_the_maps_have_every_file(self):
        self.sees(Break().write("src/heap/forgotten.h", C), "src/README.md",
                  "does not have src/heap/forgotten.h")
        self.sees(Break().write("cli/view/forgotten.h", C), "cli/README.md",
                  "does not have cli/view/forgotten.h")

    def test_the_maps_have_no_other_file(self):
        row = "| `vanished.c` | what was |\n"
        for path in ("src/README.md", "cli/README.md"):
            self.sees(Break().append(path, row), path, "there is no file vanished.c")

    def test_the_maps_have_a_file_once(self):
        change = Break()
        self.sees(change.append("src/README.md", change.line("src/README.md", "| `bits.h`")),
                  "src/README.md", "src/base/bits.h stands in line")

    def test_the_maps_have_a_file_below_its_folder(self):
        change = Break()
        row = change.line("src/README.md", "| `bits.h`")
        self.sees(change.swap("src/README.md", row, "").append("src/README.md", row),
                  "src/README.md", "src/base/bits.h does not lie in src/api/")

    def test_the_layers_agree(self):
        self.sees(Break().swap("CONTRIBUTING.md", "`base < ", "`").swap("CONTRIBUTING.md", " < args", ""),
                  "CONTRIBUTING.md", "the layers of src/", "the layers of cli/")
        self.sees(Break().swap("cli/README.md", " names/ ", " view/ "), "cli/README.md",
                  "the picture's layers")
        change = Break()
        row = change.line("src/README.md", " leak ")
        self.sees(change.swap("src/README.md", row, ""), "src/README.md", "the picture's layers")
        change = Break()
        self.sees(change.swap("src/README.md", row, "").swap("src/README.md", " guard ", row + " guard "),
                  "src/README.md", "the picture's layers")

    # Locks.

    def test_the_locks_agree(self):
        change = Break()
        bin_row, pool_row = (change.line("docs/design.md", f"| {r} |") for r in ("BIN", "POOL"))
        self.sees(change.swap("docs/design.md", pool_row, ""), "docs/design.md", "lacks POOL")
        self.sees(Break().swap("docs/design.md", pool_row, "| SPOOL | | |\n"), "docs/design.md",
                  "no RANK_SPOOL")
        self.sees(Break().swap("docs/design.md", bin_row, "").swap("docs/design.md", pool_row,
                                                                   pool_row + bin_row),
                  "docs/design.md", "the order of locks")
        self.sees(Break().swap("src/base/lock.h", "    RANK_BIN,", "    RANK_NEW,\n    RANK_BIN,"),
                  "docs/design.md", "lacks NEW")

    # Names in documents.

    def test_what_a_document_names_exists(self):
        wrong = (("`no_such_thing`", "there is no no_such_thing"),
                 ("`vanish()`", "there is no vanish()"),
                 ("`struct vanished`", "there is no struct vanished"),
                 ("`NO_SUCH_THING`", "there is no NO_SUCH_THING"),
                 ("`tls.no_such`", "there is no tls.no_such"),
                 ("`src/heap/vanished.c`", "there is no file src/heap/vanished.c"),
                 ("`heap/fmt.c`", "there is no file heap/fmt.c"),
                 ("`vanished_*.c`", "there is no file vanished_*.c"),
                 ("`heap/bin.c`: `slab_take`, `fmt_text`", "there is no fmt_text in src/heap/bin.c"),
                 ("```\n heap/slab.c  fmt_text\n```", "fmt_text is not defined in src/heap/slab.c"),
                 ("```\n heap/bin.c  slab_take   calls it\n```", "slab_take is not defined in"),
                 ("```\n api/life.c  begin   no underscore\n```", "begin is not defined in"),
                 ("```\n drawn.c\n```", "there is no file drawn.c"),
                 ("```\n drawn_function\n```", "there is no drawn_function"))
        for path in ("CONTRIBUTING.md", "docs/design.md", "src/README.md", "cli/README.md"):
            text = "".join(f"\n{piece}\n" for piece, _ in wrong)
            self.sees(Break().append(path, text), path, *(sentence for _, sentence in wrong))

    def test_a_function_that_goes_is_missed_in_the_documents(self):
        change = Break()
        for path, source in TREE.items():
            if "heap_look" in source.text and source.is_c:
                change.write(path, source.text.replace("heap_look", "heap_inspect"))
        for path in ("docs/design.md", "src/README.md"):
            self.sees(change, path, "there is no heap_look")

    # The program.

    def test_a_broken_rule_is_an_exit_status(self):
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(f"{root}/src/heap")
            with open(f"{root}/src/heap/new.c", "w") as file:
                file.write("int x;\n")
            ended = subprocess.run([sys.executable, f"{ROOT}/tools/lint.py", root],
                                   capture_output=True, text=True)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("src/heap/new.c:1: 'SPDX", ended.stdout)


if __name__ == "__main__":
    unittest.main()
