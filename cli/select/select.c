/* SPDX-License-Identifier: MIT
 *
 * select.c - which samples and which frames of a profile are looked at.
 *
 * A sample is unrolled into frames, leaf first, inlined calls included.  Whether an expression
 * matches a frame depends on the frame alone, so it is found out once for each and kept as a bit:
 *
 *      slot        0       1       2       3            one per line of each location, in order
 *      location    0       0       1       2
 *      bits        focus           hide    focus|file
 *
 * Then every sample goes through the same steps: allocators' own frames off the leaf, tags to root
 * and leaf, focus and ignore, hide and show, show_from, and what concerns the sample as a whole.
 * The words mean what they mean in pprof: an expression is looked for in the function's name, the
 * file's, and the module's; later percentages still refer to the whole.
 *
 * Cost        One match per distinct function, file and module and expression; linear in frames after.
 */
#include "select/select.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "contract/lifetimes.h"

enum frame_bits {
    IN_FOCUS = 1 << 0,
    IN_IGNORE = 1 << 1,
    IN_HIDE = 1 << 2,
    IN_SHOW = 1 << 3,
    IN_SHOW_FROM = 1 << 4,
    IN_MODULE = 1 << 5,
    IN_FILE = 1 << 6,
    IS_INTERNAL = 1 << 7,
};

/* One expression of the command line. */
struct expression {
    bool is_set;
    regex_t regex;
};

enum { FOCUS, IGNORE, HIDE, SHOW, SHOW_FROM, MODULE, SOURCE_FILE, THREAD, TAG, EXPRESSIONS };

/* A frame of the sample at hand. */
struct frame {
    /* Of the old profile, and which of its lines; or PROFILE_NONE: a tag, and `line` is the new location. */
    uint32_t location, line;
    bool begins;  /* the first frame of its location */
    uint8_t bits; /* enum frame_bits */
};

struct work {
    const struct profile *old;
    struct profile *new;
    const struct select *select;
    uint32_t type;
    struct expression expressions[EXPRESSIONS];
    char *tag_key;
    uint32_t *first_slot; /* of each location */
    uint8_t *bits;        /* of each slot */
    struct frame *frames;
    uint32_t *stack;
    struct profile_line *lines;
    uint32_t *whole;                /* the new location of an old one that lost nothing */
    uint32_t *functions, *mappings; /* of the new profile, by index in the old one */
};

/* Whether the leaf of a stack is a call of an allocator: not so in a profile of time. */
static bool has_allocators(const struct profile *profile) {
    return !profile->is_exact_leaf && strcmp(profile->period_type.name, "cpu") != 0 &&
           strcmp(profile->period_type.unit, "nanoseconds") != 0;
}

/* Expressions. */

bool select_expression(regex_t *regex, const char *option, const char *text) {
    int flags = REG_EXTENDED | REG_NOSUB;
    const char *body = text;
    if (strncmp(body, "(?i)", 4) == 0) {
        body += 4;
        flags |= REG_ICASE;
    }
    int error = regcomp(regex, body, flags);
    if (error != 0) {
        char why[128];
        regerror(error, regex, why, sizeof why);
        return decline("--%s=%s is no regular expression: %s", option, safe_text(text), why);
    }
    return true;
}

static bool compile(struct expression *expression, const char *option, const char *text) {
    expression->is_set = text != NULL && select_expression(&expression->regex, option, text);
    return expression->is_set || text == NULL;
}

static bool matches(const struct expression *expression, const char *text) {
    return regexec(&expression->regex, text, 0, NULL, 0) == 0;
}

static bool compile_tag(struct work *work) {
    const char *tag = work->select->tag;
    if (tag == NULL) {
        return true;
    }
    const char *equals = strchr(tag, '=');
    size_t length = equals != NULL ? (size_t)(equals - tag) : strlen(tag);
    work->tag_key = must_alloc(length + 1);
    memcpy(work->tag_key, tag, length);
    work->tag_key[length] = '\0';
    return compile(&work->expressions[TAG], "tag", equals != NULL ? equals + 1 : "");
}

static bool compile_all(struct work *work) {
    const struct select *select = work->select;
    const struct {
        const char *option, *text;
    } rows[] = {
        [FOCUS] = {"focus", select->focus},
        [IGNORE] = {"ignore", select->ignore},
        [HIDE] = {"hide", select->hide},
        [SHOW] = {"show", select->show},
        [SHOW_FROM] = {"show-from", select->show_from},
        [MODULE] = {"module", select->module},
        [SOURCE_FILE] = {"file", select->file},
        [THREAD] = {"thread", select->thread},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!compile(&work->expressions[i], rows[i].option, rows[i].text)) {
            return false;
        }
    }
    return compile_tag(work);
}

/* Bits of frames. */

/* What the expressions say about each function's name, its file and each module. */
struct verdicts {
    uint8_t *functions, *files, *mappings;
};

static void judge(const struct work *work, struct verdicts *verdicts) {
    const struct profile *old = work->old;
    for (int e = FOCUS; e <= SOURCE_FILE; e++) {
        const struct expression *expression = &work->expressions[e];
        if (!expression->is_set) {
            continue;
        }
        uint8_t bit = (uint8_t)(1U << e);
        for (uint32_t i = 0; i < old->function_count; i++) {
            const struct profile_function *function = &old->functions[i];
            verdicts->functions[i] |= matches(expression, function->name) ? bit : 0;
            verdicts->files[i] |= matches(expression, function->file) ? bit : 0;
        }
        for (uint32_t i = 0; i < old->mapping_count; i++) {
            verdicts->mappings[i] |= matches(expression, old->mappings[i].path) ? bit : 0;
        }
    }
}

/* What they say about a frame that is no function of the old profile, by its two texts. */
static uint8_t bits_of_texts(const struct work *work, const char *name, const char *file) {
    uint8_t bits = 0;
    for (int e = FOCUS; e <= SHOW_FROM; e++) {
        const struct expression *expression = &work->expressions[e];
        if (expression->is_set && (matches(expression, name) || matches(expression, file))) {
            bits |= (uint8_t)(1U << e);
        }
    }
    return bits;
}

/* --module looks at modules only and --file at files only; the others at everything. */
static uint8_t bits_of_frame(const struct work *work, const struct verdicts *verdicts,
                             const struct profile_location *location, uint32_t line) {
    const uint8_t of_names = IN_FOCUS | IN_IGNORE | IN_HIDE | IN_SHOW | IN_SHOW_FROM;
    uint8_t bits = 0;
    if (location->mapping < work->old->mapping_count) {
        bits |= verdicts->mappings[location->mapping] & (of_names | IN_MODULE);
    }
    if (line < location->line_count) {
        uint32_t function = work->old->lines[location->lines + line].function;
        bits |= verdicts->functions[function] & (of_names | IS_INTERNAL);
        bits |= verdicts->files[function] & (of_names | IN_FILE);
    } else { /* it is shown as its address, so that is its name */
        uint32_t index = (uint32_t)(location - work->old->locations);
        const char *address = select_frame_name(work->old, index, 0, BY_FUNCTIONS);
        bits |= bits_of_texts(work, address, address);
    }
    return bits;
}

static void find_bits(struct work *work) {
    const struct profile *old = work->old;
    struct verdicts verdicts = {must_zeroed((size_t)old->function_count + 1),
                                must_zeroed((size_t)old->function_count + 1),
                                must_zeroed((size_t)old->mapping_count + 1)};
    judge(work, &verdicts);
    if (!work->select->show_internal && has_allocators(old)) {
        for (uint32_t i = 0; i < old->function_count; i++) {
            verdicts.functions[i] |= select_is_allocator(old->functions[i].name) ? IS_INTERNAL : 0;
        }
    }
    uint32_t slots = 0;
    work->first_slot = must_alloc(((size_t)old->location_count + 1) * sizeof *work->first_slot);
    for (uint32_t i = 0; i < old->location_count; i++) {
        work->first_slot[i] = slots;
        slots += profile_frames(&old->locations[i]);
    }
    work->bits = must_alloc((size_t)slots + 1);
    for (uint32_t i = 0; i < old->location_count; i++) {
        for (uint32_t j = 0; j < profile_frames(&old->locations[i]); j++) {
            work->bits[work->first_slot[i] + j] =
                bits_of_frame(work, &verdicts, &old->locations[i], j);
        }
    }
    free(verdicts.functions);
    free(verdicts.files);
    free(verdicts.mappings);
}

/* What concerns a sample as a whole. */

static const char *label_text(const struct profile_label *label, char buffer[32]) {
    if (label->text != NULL) {
        return label->text;
    }
    snprintf(buffer, 32, "%" PRId64, label->number);
    return buffer;
}

static bool has_label(const struct work *work, const struct profile_sample *sample, const char *key,
                      const struct expression *expression) {
    for (uint32_t i = 0; i < sample->label_count; i++) {
        const struct profile_label *label = &work->old->labels[sample->labels + i];
        char buffer[32];
        if (strcmp(label->key, key) == 0 && matches(expression, label_text(label, buffer))) {
            return true;
        }
    }
    return false;
}

static bool is_of_thread(const struct work *work, const struct profile_sample *sample) {
    const struct expression *thread = &work->expressions[THREAD];
    return !thread->is_set || has_label(work, sample, "thread", thread) ||
           has_label(work, sample, "thread_name", thread) ||
           has_label(work, sample, "thread_id", thread);
}

/* The size in a label, or the mean of what was counted. */
static bool find_size(const struct work *work, uint32_t sample, uint64_t *bytes) {
    const struct profile_sample *row = &work->old->samples[sample];
    for (uint32_t i = 0; i < row->label_count; i++) {
        const struct profile_label *label = &work->old->labels[row->labels + i];
        if (strcmp(label->key, "bytes") == 0 && label->text == NULL && label->number > 0) {
            *bytes = (uint64_t)label->number;
            return true;
        }
    }
    uint32_t space, objects;
    if (!profile_find_pair(work->old, work->type, &space, &objects)) {
        return false;
    }
    double sum = (double)profile_value(work->old, sample, space);
    double count = (double)profile_value(work->old, sample, objects);
    if (count == 0 || sum / count < 0) {
        return false;
    }
    *bytes = (uint64_t)(sum / count + 0.5);
    return true;
}

static bool is_of_size(const struct work *work, uint32_t sample) {
    if (work->select->size_least == 0 && work->select->size_most == 0) {
        return true;
    }
    uint64_t bytes;
    return find_size(work, sample, &bytes) && bytes >= work->select->size_least &&
           (work->select->size_most == 0 || bytes <= work->select->size_most);
}

/* A label is the upper bound of a step; limits between two bounds count as the lower one. */
static bool is_of_lifetime(const struct work *work, uint32_t sample) {
    enum { NS_PER_MS = 1000000 };
    const struct select *select = work->select;
    if (select->life_least == 0 && select->life_most == 0) {
        return true;
    }
    const struct profile_label *label =
        profile_number_label(work->old, sample, LIFETIME_LABEL, LIFETIME_UNIT);
    return label != NULL && (uint64_t)label->number > select->life_least / NS_PER_MS &&
           (select->life_most == 0 || (uint64_t)label->number <= select->life_most / NS_PER_MS);
}

static bool is_sample_wanted(const struct work *work, uint32_t sample) {
    const struct profile_sample *row = &work->old->samples[sample];
    return is_of_thread(work, row) && is_of_size(work, sample) && is_of_lifetime(work, sample) &&
           (!work->expressions[TAG].is_set ||
            has_label(work, row, work->tag_key, &work->expressions[TAG]));
}

/* Frames of a sample. */

static uint32_t unroll(struct work *work, const struct profile_sample *sample) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < sample->depth; i++) {
        uint32_t location = work->old->stacks[sample->stack + i];
        const uint8_t *bits = &work->bits[work->first_slot[location]];
        for (uint32_t j = 0; j < profile_frames(&work->old->locations[location]); j++) {
            work->frames[count++] = (struct frame){location, j, j == 0, bits[j]};
        }
    }
    return count;
}

/* The outermost frame stays whatever it is: every sample has something to blame. */
static uint32_t drop_allocators(struct work *work, uint32_t frames) {
    uint32_t count = 0;
    while (count + 1 < frames && (work->frames[count].bits & IS_INTERNAL) != 0) {
        count++;
    }
    memmove(work->frames, work->frames + count, (frames - count) * sizeof *work->frames);
    if (frames > count) { /* what stays of a location begins anew */
        work->frames[0].begins = true;
    }
    return frames - count;
}

/* With all inlined calls left out, a location is the function that really was called.  Last of all, so that
 * expressions see what was inlined, as pprof's do. */
static uint32_t drop_inlines(struct work *work, uint32_t frames) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < frames; i++) {
        if (i + 1 == frames || work->frames[i + 1].begins) {
            work->frames[kept] = work->frames[i];
            work->frames[kept++].begins = true;
        }
    }
    return kept;
}

static bool is_focused(const struct work *work, uint32_t frames) {
    uint8_t any = 0;
    for (uint32_t i = 0; i < frames; i++) {
        any |= work->frames[i].bits;
    }
    return (!work->expressions[FOCUS].is_set || (any & IN_FOCUS) != 0) && (any & IN_IGNORE) == 0 &&
           (!work->expressions[MODULE].is_set || (any & IN_MODULE) != 0) &&
           (!work->expressions[SOURCE_FILE].is_set || (any & IN_FILE) != 0);
}

static uint32_t drop_hidden(struct work *work, uint32_t frames) {
    uint32_t kept = 0;
    bool begins = true;
    for (uint32_t i = 0; i < frames; i++) {
        uint8_t bits = work->frames[i].bits;
        begins |= work->frames[i].begins;
        if ((bits & IN_HIDE) == 0 && (!work->expressions[SHOW].is_set || (bits & IN_SHOW) != 0)) {
            work->frames[kept] = work->frames[i];
            work->frames[kept++].begins = begins;
            begins = false;
        }
    }
    return kept;
}

/* Everything above the outermost match is dropped; so is a whole sample without a match. */
static uint32_t drop_above(const struct work *work, uint32_t frames) {
    if (!work->expressions[SHOW_FROM].is_set) {
        return frames;
    }
    while (frames > 0 && (work->frames[frames - 1].bits & IN_SHOW_FROM) == 0) {
        frames--;
    }
    return frames;
}

/* Tags are frames like others: a function named by the value, in a file named by the key. */

static struct frame tag_frame(struct work *work, const struct profile_sample *sample,
                              const char *key) {
    char text[512] = "", buffer[32];
    size_t length = 0;
    for (uint32_t i = 0; i < sample->label_count && length < sizeof text - 1; i++) {
        const struct profile_label *label = &work->old->labels[sample->labels + i];
        if (strcmp(label->key, key) == 0) {
            int put = snprintf(text + length, sizeof text - length, "%s%s", length > 0 ? "," : "",
                               label_text(label, buffer));
            length += put > 0 ? (size_t)put : 0;
        }
    }
    if (length == 0) {
        snprintf(text, sizeof text, "(no %.500s)", key);
    }
    struct profile_function function = {.name = profile_text(work->new, text, strlen(text)),
                                        .file = profile_text(work->new, key, strlen(key))};
    function.system_name = function.name;
    struct profile_line line = {profile_add_function(work->new, function), 0};
    uint32_t location = profile_add_location(work->new, 0, PROFILE_NONE, &line, 1);
    return (struct frame){PROFILE_NONE, location, true, bits_of_texts(work, function.name, key)};
}

static uint32_t add_tags(struct work *work, const struct profile_sample *sample, uint32_t frames) {
    if (work->select->tag_leaf != NULL) {
        memmove(work->frames + 1, work->frames, frames * sizeof *work->frames);
        work->frames[0] = tag_frame(work, sample, work->select->tag_leaf);
        frames++;
    }
    if (work->select->tag_root != NULL) {
        work->frames[frames++] = tag_frame(work, sample, work->select->tag_root);
    }
    return frames;
}

/* The new profile. */

static uint32_t new_location(struct work *work, const struct frame *frames, uint32_t count) {
    if (frames[0].location == PROFILE_NONE) {
        return frames[0].line;
    }
    uint32_t index = frames[0].location;
    const struct profile_location *old = &work->old->locations[index];
    bool is_whole = count == profile_frames(old);
    if (is_whole && work->whole[index] != PROFILE_NONE) {
        return work->whole[index];
    }
    uint32_t lines = 0;
    for (uint32_t i = 0; i < count && old->line_count > 0; i++) {
        work->lines[lines] = work->old->lines[old->lines + frames[i].line];
        work->lines[lines].function = work->functions[work->lines[lines].function];
        lines++;
    }
    uint32_t mapping = old->mapping < work->old->mapping_count ? work->mappings[old->mapping]
                                                               : (uint32_t)PROFILE_NONE;
    uint32_t location = profile_add_location(work->new, old->address, mapping, work->lines, lines);
    if (is_whole) {
        work->whole[index] = location;
    }
    return location;
}

static uint32_t roll_up(struct work *work, uint32_t frames) {
    uint32_t depth = 0;
    for (uint32_t i = 0; i < frames;) {
        uint32_t end = i + 1;
        while (end < frames && !work->frames[end].begins) {
            end++;
        }
        work->stack[depth++] = new_location(work, &work->frames[i], end - i);
        i = end;
    }
    return depth;
}

/* The frames of a sample that stay; 0 where nothing does. */
static uint32_t choose_frames(struct work *work, const struct profile_sample *sample) {
    uint32_t frames = drop_allocators(work, unroll(work, sample));
    frames = add_tags(work, sample, frames);
    if (!is_focused(work, frames)) {
        return 0;
    }
    frames = drop_above(work, drop_hidden(work, frames));
    return work->select->no_inlines ? drop_inlines(work, frames) : frames;
}

/* Whether a sample that has no stack at all may stay. */
static bool allows_no_stack(const struct work *work) {
    static const int wanting[] = {FOCUS, SHOW, SHOW_FROM, MODULE, SOURCE_FILE};
    for (size_t i = 0; i < sizeof wanting / sizeof wanting[0]; i++) {
        if (work->expressions[wanting[i]].is_set) {
            return false;
        }
    }
    return true;
}

static void choose_sample(struct work *work, uint32_t index) {
    const struct profile_sample *sample = &work->old->samples[index];
    if (!is_sample_wanted(work, index)) {
        return;
    }
    uint32_t frames = choose_frames(work, sample);
    if (frames == 0 && (sample->depth > 0 || !allows_no_stack(work))) {
        return;
    }
    uint32_t depth = roll_up(work, frames);
    struct profile_label *labels = profile_copy_labels(work->new, work->old, sample);
    profile_add_sample(work->new, work->stack, depth,
                       work->old->values + (size_t)index * work->old->type_count, labels,
                       sample->label_count);
    free(labels);
}

static void copy_parts(struct work *work) {
    work->new = profile_new();
    profile_adopt(work->new, work->old);
    work->new->default_type = work->type;
    for (uint32_t i = 0; i < work->old->comment_count; i++) {
        profile_add_comment(work->new, work->old->comments[i]);
    }
    work->mappings = profile_copy_mappings(work->new, work->old);
    work->functions = profile_copy_functions(work->new, work->old);
}

/* Room for the longest stack with everything inlined, and two tags. */
static void make_room(struct work *work) {
    const struct profile *old = work->old;
    size_t most = 0;
    for (uint32_t i = 0; i < old->sample_count; i++) {
        size_t frames = 0;
        for (uint32_t j = 0; j < old->samples[i].depth; j++) {
            frames += profile_frames(&old->locations[old->stacks[old->samples[i].stack + j]]);
        }
        most = frames > most ? frames : most;
    }
    work->frames = must_alloc((most + 2) * sizeof *work->frames);
    work->stack = must_alloc((most + 2) * sizeof *work->stack);
    work->lines = must_alloc((most + 2) * sizeof *work->lines);
    work->whole = must_alloc(((size_t)old->location_count + 1) * sizeof *work->whole);
    memset(work->whole, 0xff, ((size_t)old->location_count + 1) * sizeof *work->whole);
}

static void clean_up(struct work *work) {
    for (int e = 0; e < EXPRESSIONS; e++) {
        if (work->expressions[e].is_set) {
            regfree(&work->expressions[e].regex);
        }
    }
    free(work->tag_key);
    free(work->first_slot);
    free(work->bits);
    free(work->frames);
    free(work->stack);
    free(work->lines);
    free(work->whole);
    free(work->functions);
    free(work->mappings);
}

struct profile *select_apply(const struct profile *profile, const struct select *select) {
    struct work work = {.old = profile, .select = select};
    work.type = select_metric(profile, select->metric);
    if (work.type != PROFILE_NONE && compile_all(&work)) {
        copy_parts(&work);
        find_bits(&work);
        make_room(&work);
        for (uint32_t i = 0; i < profile->sample_count; i++) {
            choose_sample(&work, i);
        }
    }
    clean_up(&work);
    return work.new;
}
