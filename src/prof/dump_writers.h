/* SPDX-License-Identifier: MIT
 *
 * dump_writers.h - the writers of formats, for dump.c: what each makes of an extract and the maps.
 */
#pragma once

#include "out/maps.h"
#include "out/out.h"
#include "prof/extract.h"

void dump_write_jemalloc(struct out *out, const struct extract *extract, const struct maps *maps);
void dump_write_gperftools(struct out *out, const struct extract *extract, const struct maps *maps);

/* These need memory of their own: 0 or -ENOMEM. */
int dump_write_proto(struct out *out, const struct extract *extract, const struct maps *maps,
                     bool is_snapshot);
int dump_write_log(struct out *out, const struct dump_log *log);
void dump_write_recent(struct out *out, struct dump_events events, int64_t most);
