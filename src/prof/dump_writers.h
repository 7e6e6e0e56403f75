/* SPDX-License-Identifier: MIT
 *
 * dump_writers.h - the writers of formats, for dump.c: what each makes of an extract and the maps.
 */
#pragma once

#include "out/maps.h"
#include "out/out.h"
#include "prof/extract.h"

void dump_jemalloc_write(struct out *out, const struct extract *extract, const struct maps *maps);
void dump_gperftools_write(struct out *out, const struct extract *extract, const struct maps *maps);

/* These need memory of their own: 0 or -ENOMEM. */
int dump_proto_write(struct out *out, const struct extract *extract, const struct maps *maps,
                     bool is_snapshot);
int dump_json_log(struct out *out, const struct dump_log *log);
void dump_json_recent(struct out *out, struct dump_events events, int64_t most);
