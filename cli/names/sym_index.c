/* SPDX-License-Identifier: MIT
 *
 * sym_index.c - from addresses to functions, inlined calls and lines, by way of libdw.
 *
 * libdw reads the formats; its own answers to "which functions contain this address" walk a tree per
 * address and follow inlined calls the wrong way.  Here the question is turned around: the addresses are
 * sorted, each tree is walked once, and every function or inlined call claims the addresses inside its
 * ranges.  The smallest range wins, a later one among equals, so that the deepest call keeps the address:
 *
 *      subprogram handle      [1000, 1400)    claims 1010 1200 1390
 *        inlined  parse       [1180, 1300)    claims      1200
 *          inlined  skip      [1200, 1208)    claims      1200
 *
 *      1200:  skip    its line by the line table
 *             parse   at the call file and line of skip
 *             handle  at the call file and line of parse
 *
 * Units and functions without any of the addresses are skipped.  An address of a unit that no
 * function claims is looked for again everywhere: nested functions lie outside the ranges of those
 * around them.
 *
 * Files are hostile: the depth is bounded, siblings must come later in the file, and time and memory are
 * limited by the process.  Read next: sym_worker.c.
 */
#include "names/sym_index.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <gelf.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/cli.h"
#include "names/sym_table.h"

enum { TREE_DEPTH_MOST = 256, NONE = UINT32_MAX };

/* A function, or a call that was inlined; made only on the way to a claimed address. */
struct node {
    Dwarf_Die die;
    uint32_t parent; /* the function or call around an inlined call */
    uint32_t unit;
    uint32_t system_name, name, start_line; /* once has_names */
    uint32_t call_file, call_line;
    bool is_inlined, has_names;
};

struct unit {
    Dwarf_Die die;
    Dwarf_Files *files;
    size_t file_count;
    const char *folder;                /* what relative names are relative to; may be NULL */
    bool has_files, names_are_symbols; /* a language without mangling */
    bool has_ranges;
};

struct address {
    uint64_t address, offset;
    uint64_t length; /* of the range that claimed it */
    uint32_t node, unit;
    uint32_t visited_by; /* the unit that may claim it now */
};

/* An address that lies in a unit. */
struct visit {
    uint32_t unit, address;
};

struct index {
    struct sym_builder *out;
    struct address *addresses; /* by address */
    size_t count;
    struct sym_table *symbols;
    struct unit *units;
    uint32_t unit_count, unit_room;
    struct node *nodes;
    uint32_t node_count, node_room;
    struct visit *visits; /* by unit */
    uint32_t visit_count, visit_room;
};

/* The way from a unit down to where a walk is; on the stack. */
struct step {
    struct step *up; /* the next function or call around */
    Dwarf_Die *die;
    uint32_t node; /* NONE: not needed yet */
    bool is_inlined;
};

struct walk {
    struct index *index;
    uint32_t unit;
    bool is_thorough;
};

/* Addresses. */

/* The first address that is not below this one. */
static size_t lower_bound(const struct index *index, uint64_t address) {
    size_t low = 0, high = index->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (index->addresses[middle].address < address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static int compare_addresses(const void *a, const void *b) {
    uint64_t left = ((const struct address *)a)->address;
    uint64_t right = ((const struct address *)b)->address;
    return left < right ? -1 : left > right;
}

/* From an offset in the file to the address the linker gave it.  A debug file alone may have lost
 * the offsets of its segments; then the usual layout of the first ones is assumed. */
static uint64_t address_of(Elf *elf, uint64_t offset) {
    size_t count = 0;
    uint64_t base = UINT64_MAX, found = UINT64_MAX;
    elf_getphdrnum(elf, &count);
    for (size_t i = 0; i < count; i++) {
        GElf_Phdr header;
        if (gelf_getphdr(elf, (int)i, &header) == NULL || header.p_type != PT_LOAD) {
            continue;
        }
        base = base == UINT64_MAX ? header.p_vaddr & ~UINT64_C(4095) : base;
        bool is_inside = offset >= header.p_offset && offset - header.p_offset < header.p_filesz;
        if (is_inside && (found == UINT64_MAX || (header.p_flags & PF_X) != 0)) {
            found = offset - header.p_offset + header.p_vaddr;
        }
    }
    return found != UINT64_MAX ? found : base != UINT64_MAX ? base + offset : offset;
}

static void set_addresses(struct index *index, const struct sym_files *files,
                          const uint64_t *offsets, size_t count) {
    Elf *elf = files->module.elf != NULL ? files->module.elf : files->debug.elf;
    index->addresses = must_alloc(count * sizeof index->addresses[0]);
    index->count = count;
    for (size_t i = 0; i < count; i++) {
        index->addresses[i] = (struct address){.address = address_of(elf, offsets[i]),
                                               .offset = offsets[i],
                                               .length = UINT64_MAX,
                                               .node = NONE,
                                               .unit = NONE,
                                               .visited_by = NONE};
    }
    qsort(index->addresses, count, sizeof index->addresses[0], compare_addresses);
}

/* Units. */

static bool is_unmangled(int language) {
    static const int languages[] = {
        DW_LANG_C89,   DW_LANG_C,       DW_LANG_C99,           DW_LANG_C11,       DW_LANG_Ada83,
        DW_LANG_Ada95, DW_LANG_Cobol74, DW_LANG_Cobol85,       DW_LANG_Fortran77, DW_LANG_Pascal83,
        DW_LANG_PLI,   DW_LANG_UPC,     DW_LANG_Mips_Assembler};
    bool is_one = false;
    for (size_t i = 0; i < sizeof languages / sizeof languages[0]; i++) {
        is_one |= languages[i] == language;
    }
    return is_one;
}

static void add_visit(struct index *index, uint32_t unit, size_t address) {
    index->visits = must_have_room(index->visits, index->visit_count, &index->visit_room,
                                   sizeof index->visits[0]);
    index->visits[index->visit_count++] = (struct visit){unit, (uint32_t)address};
    if (index->addresses[address].unit == NONE) {
        index->addresses[address].unit = unit;
    }
}

static void add_unit(struct index *index, Dwarf_Die *die) {
    index->units =
        must_have_room(index->units, index->unit_count, &index->unit_room, sizeof index->units[0]);
    uint32_t number = index->unit_count++;
    struct unit *unit = &index->units[number];
    Dwarf_Attribute attribute;
    *unit = (struct unit){.die = *die, .names_are_symbols = is_unmangled(dwarf_srclang(die))};
    unit->folder = dwarf_formstring(dwarf_attr(die, DW_AT_comp_dir, &attribute));
    Dwarf_Addr base, low, high;
    for (ptrdiff_t at = 0; (at = dwarf_ranges(die, at, &base, &low, &high)) > 0;) {
        unit->has_ranges = true;
        for (size_t i = lower_bound(index, low);
             i < index->count && index->addresses[i].address < high; i++) {
            add_visit(index, number, i);
        }
    }
}

static void read_units(struct index *index, Dwarf *dwarf) {
    Dwarf_CU *cu = NULL;
    Dwarf_Die die;
    uint8_t type;
    while (dwarf_get_units(dwarf, cu, &cu, NULL, &type, &die, NULL) == 0) {
        int tag = dwarf_tag(&die);
        if (tag == DW_TAG_compile_unit || tag == DW_TAG_skeleton_unit) {
            add_unit(index, &die);
        }
    }
}

/* Trees. */

static uint32_t number_of(Dwarf_Die *die, unsigned name) {
    Dwarf_Attribute attribute;
    Dwarf_Word value;
    bool is_there = dwarf_attr(die, name, &attribute) != NULL &&
                    dwarf_formudata(&attribute, &value) == 0 && value <= UINT32_MAX;
    return is_there ? (uint32_t)value : 0;
}

/* Steps are made into nodes from the outside in, only where something was claimed. */
static uint32_t node_of(struct walk *walk, struct step *step) {
    struct index *index = walk->index;
    if (step->node != NONE) {
        return step->node;
    }
    bool has_parent = step->is_inlined && step->up != NULL;
    uint32_t parent = has_parent ? node_of(walk, step->up) : NONE;
    index->nodes =
        must_have_room(index->nodes, index->node_count, &index->node_room, sizeof index->nodes[0]);
    struct node *node = &index->nodes[index->node_count];
    *node = (struct node){
        .die = *step->die, .parent = parent, .unit = walk->unit, .is_inlined = step->is_inlined};
    if (step->is_inlined) {
        node->call_file = number_of(step->die, DW_AT_call_file);
        node->call_line = number_of(step->die, DW_AT_call_line);
    }
    return step->node = index->node_count++;
}

/* Claims the addresses inside its ranges; true when there is one. */
static bool claim(struct walk *walk, struct step *step) {
    struct index *index = walk->index;
    Dwarf_Addr base, low, high;
    bool has_any = false;
    for (ptrdiff_t at = 0; (at = dwarf_ranges(step->die, at, &base, &low, &high)) > 0;) {
        for (size_t i = lower_bound(index, low);
             i < index->count && index->addresses[i].address < high; i++) {
            struct address *address = &index->addresses[i];
            if (address->visited_by != walk->unit) {
                continue; /* functions that the linker dropped claim addresses near 0 */
            }
            has_any = true;
            if (high - low <= address->length) {
                address->node = node_of(walk, step);
                address->length = high - low;
                address->unit = walk->unit;
            }
        }
    }
    return has_any;
}

static void walk_children(struct walk *walk, Dwarf_Die *die, struct step *up, unsigned depth);

static void walk_die(struct walk *walk, Dwarf_Die *die, struct step *up, unsigned depth) {
    int tag = dwarf_tag(die);
    struct step step = {up, die, NONE, tag == DW_TAG_inlined_subroutine};
    switch (tag) {
    case DW_TAG_subprogram:
    case DW_TAG_inlined_subroutine:
        if (claim(walk, &step) || walk->is_thorough) {
            walk_children(walk, die, &step, depth);
        }
        break;
    case DW_TAG_lexical_block:
    case DW_TAG_namespace:
    case DW_TAG_module:
    case DW_TAG_try_block:
    case DW_TAG_catch_block:
        walk_children(walk, die, up, depth);
        break;
    case DW_TAG_class_type:
    case DW_TAG_structure_type:
    case DW_TAG_union_type:
    case DW_TAG_enumeration_type:
        if (walk->is_thorough) { /* these nearly always hold declarations */
            walk_children(walk, die, up, depth);
        }
        break;
    default:
        break;
    }
}

static void walk_children(struct walk *walk, Dwarf_Die *die, struct step *up, unsigned depth) {
    Dwarf_Die child, next;
    if (depth >= TREE_DEPTH_MOST || dwarf_child(die, &child) != 0) {
        return;
    }
    for (;;) {
        walk_die(walk, &child, up, depth + 1);
        if (dwarf_siblingof(&child, &next) != 0 || (char *)next.addr <= (char *)child.addr) {
            return;
        }
        child = next;
    }
}

static void walk_unit(struct index *index, uint32_t unit, bool is_thorough) {
    struct walk walk = {.index = index, .unit = unit, .is_thorough = is_thorough};
    Dwarf_Die die = index->units[unit].die;
    walk_children(&walk, &die, NULL, 0);
}

static bool is_claimed(const struct index *index, size_t first, size_t last) {
    for (size_t i = first; i < last; i++) {
        if (index->addresses[index->visits[i].address].node == NONE) {
            return false;
        }
    }
    return true;
}

/* Visits were added unit by unit, so those of a unit are neighbours. */
static void walk_visited(struct index *index, _Atomic uint32_t *done) {
    for (size_t first = 0, last; first < index->visit_count; first = last) {
        uint32_t unit = index->visits[first].unit;
        for (last = first; last < index->visit_count && index->visits[last].unit == unit; last++) {
            index->addresses[index->visits[last].address].visited_by = unit;
        }
        walk_unit(index, unit, false);
        if (!is_claimed(index, first, last)) {
            walk_unit(index, unit, true);
        }
        atomic_fetch_add_explicit(done, (uint32_t)(last - first), memory_order_relaxed);
    }
}

/* Units that do not say where they are, for addresses that no other unit has. */
static void walk_unknown(struct index *index) {
    for (uint32_t unit = 0; unit < index->unit_count; unit++) {
        bool is_needed = false;
        for (size_t i = 0; !index->units[unit].has_ranges && i < index->count; i++) {
            bool is_free = index->addresses[i].unit == NONE;
            index->addresses[i].visited_by = is_free ? unit : NONE;
            is_needed |= is_free;
        }
        if (is_needed) {
            walk_unit(index, unit, false);
        }
    }
}

/* Frames. */

static const char *text_of(Dwarf_Die *die, unsigned name) {
    Dwarf_Attribute attribute;
    return dwarf_formstring(dwarf_attr_integrate(die, name, &attribute));
}

static const char *linkage_name_of(Dwarf_Die *die) {
    const char *name = text_of(die, DW_AT_linkage_name);
    return name != NULL ? name : text_of(die, DW_AT_MIPS_linkage_name);
}

/* Where a function begins; the first of its pieces is the one with its symbol. */
static uint64_t entry_of(Dwarf_Die *die, uint64_t otherwise) {
    Dwarf_Addr entry, base, high;
    if (dwarf_entrypc(die, &entry) == 0) {
        return entry;
    }
    return dwarf_ranges(die, 0, &base, &entry, &high) > 0 ? entry : otherwise;
}

/* A C++ function without a linker name here has one in the symbol table. */
static void name_node(struct index *index, struct node *node, uint64_t address) {
    const struct unit *unit = &index->units[node->unit];
    const char *name = linkage_name_of(&node->die);
    if (name == NULL && !unit->names_are_symbols && !node->is_inlined) {
        name = sym_table_find(index->symbols, entry_of(&node->die, address));
    }
    name = name != NULL ? name : text_of(&node->die, DW_AT_name);
    Dwarf_Attribute attribute;
    Dwarf_Word line = 0;
    dwarf_formudata(dwarf_attr_integrate(&node->die, DW_AT_decl_line, &attribute), &line);
    node->system_name = sym_builder_text(index->out, name != NULL ? name : "??");
    node->name = sym_builder_name(index->out, node->system_name);
    node->start_line = line <= UINT32_MAX ? (uint32_t)line : 0;
    node->has_names = true;
}

/* The text of a file's name, with the folder of the compiler where it has none of its own. */
static uint32_t path_text(struct index *index, const struct unit *unit, const char *path) {
    char whole[PATH_MAX];
    if (path == NULL || path[0] == '/' || unit->folder == NULL) {
        return sym_builder_text(index->out, path != NULL ? path : "");
    }
    int length = snprintf(whole, sizeof whole, "%s/%s", unit->folder, path);
    return sym_builder_text(index->out, length < PATH_MAX ? whole : path);
}

static uint32_t file_of(struct index *index, uint32_t number, uint32_t file) {
    struct unit *unit = &index->units[number];
    if (!unit->has_files) {
        unit->has_files = true;
        if (dwarf_getsrcfiles(&unit->die, &unit->files, &unit->file_count) != 0) {
            unit->file_count = 0;
        }
    }
    const char *path =
        file < unit->file_count ? dwarf_filesrc(unit->files, file, NULL, NULL) : NULL;
    return path_text(index, unit, path);
}

static void find_line(struct index *index, const struct address *address, struct sym_frame *frame) {
    if (address->unit == NONE) {
        return;
    }
    struct unit *unit = &index->units[address->unit];
    Dwarf_Line *line = dwarf_getsrc_die(&unit->die, address->address);
    const char *file = line == NULL ? NULL : dwarf_linesrc(line, NULL, NULL);
    int number = 0;
    if (file != NULL && dwarf_lineno(line, &number) == 0) {
        frame->file = path_text(index, unit, file);
        frame->line = number > 0 ? (uint32_t)number : 0;
    }
}

/* The name from the symbol table, where no function is known. */
static void add_plain_frame(struct index *index, const struct address *address,
                            struct sym_frame frame) {
    const char *name = sym_table_find(index->symbols, address->address);
    if (name != NULL || frame.line != 0) {
        frame.system_name = sym_builder_text(index->out, name != NULL ? name : "??");
        frame.name = sym_builder_name(index->out, frame.system_name);
        sym_builder_frame(index->out, frame);
    }
}

static void add_place(struct index *index, const struct address *address) {
    struct sym_frame frame = {0};
    find_line(index, address, &frame);
    if (address->node == NONE) {
        add_plain_frame(index, address, frame);
    }
    for (uint32_t at = address->node; at != NONE;) {
        struct node *node = &index->nodes[at];
        if (!node->has_names) {
            name_node(index, node, address->address);
        }
        frame.system_name = node->system_name;
        frame.name = node->name;
        frame.start_line = node->start_line;
        sym_builder_frame(index->out, frame);
        frame.file = node->is_inlined ? file_of(index, node->unit, node->call_file) : 0;
        frame.line = node->call_line;
        at = node->parent;
    }
    sym_builder_place(index->out, address->offset);
}

static Dwarf *open_dwarf(const struct sym_file *file) {
    return sym_file_has_debug(file) ? dwarf_begin_elf(file->elf, DWARF_C_READ, NULL) : NULL;
}

void sym_index_resolve(const struct sym_files *files, const uint64_t *offsets, size_t count,
                       struct sym_builder *out, _Atomic uint32_t *done) {
    struct index index = {.out = out};
    if (count == 0 || (files->module.elf == NULL && files->debug.elf == NULL)) {
        return;
    }
    set_addresses(&index, files, offsets, count);
    index.symbols = sym_table_read(files);
    Dwarf *dwarf = open_dwarf(files->debug.elf != NULL ? &files->debug : &files->module);
    Dwarf *alternative = open_dwarf(&files->alternative);
    if (dwarf != NULL) {
        if (alternative != NULL) {
            dwarf_setalt(dwarf, alternative);
        }
        out->header.flags |= SYM_HAS_DWARF;
        read_units(&index, dwarf);
        walk_visited(&index, done);
        walk_unknown(&index);
    }
    for (size_t i = 0; i < count; i++) {
        add_place(&index, &index.addresses[i]);
    }
    dwarf_end(dwarf);
    dwarf_end(alternative);
    free(index.addresses);
    sym_table_free(index.symbols);
    free(index.units);
    free(index.nodes);
    free(index.visits);
}
