/* SPDX-License-Identifier: MIT
 *
 * test_opt_sources.c - where configuration text comes from, which source wins, and the options about options:
 * confirm_conf and abort_conf.
 */

#include "base/os.h"
#include "opt/opt.h"
#include "opt_start.h"
#include "unit.h"

/* ---------------------------------------------------------------- sources */

TEST(each_source_wins_over_those_before_it) {
    clear_environment();
    struct opt_program program = {"dirty_decay_ms:1,depot_bytes:1", NULL};
    check_str(init(program), "");
    check_eq(opt.dirty_decay_ms, 1);
    link_text = "dirty_decay_ms:2";
    check_str(init(program), "");
    check_eq(opt.dirty_decay_ms, 2);
    setenv("MIMALLOC_PURGE_DELAY", "3", 1);
    check_str(init(program), "");
    check_eq(opt.dirty_decay_ms, 3);
    setenv("MALLOC_CONF", "dirty_decay_ms:4,narenas:4", 1);
    check_str(init(program), "");
    check_eq(opt.dirty_decay_ms, 4);
    setenv("JE_MALLOC_CONF", "dirty_decay_ms:5", 1);
    check_str(init(program), "");
    check_eq(opt.dirty_decay_ms, 5);
    setenv("TALLY_CONF", "dirty_decay_ms:6", 1);
    check_str(init(program), "");
    check_eq(opt.dirty_decay_ms, 6);
    program.conf_harder = "dirty_decay_ms:7";
    check_str(init(program), "");
    check_eq(opt.dirty_decay_ms, 7);
    check_eq(opt.depot_bytes, 1);
    check_eq(opt.narenas, 4);
}

TEST(texts_of_all_sources_can_be_asked_for) {
    clear_environment();
    check_str(init((struct opt_program){0}), "");
    check(opt_source_text(OPT_FROM_BUILD) != NULL);
    for (unsigned s = OPT_FROM_BUILD + 1; s < OPT_SOURCES; s++) {
        check(opt_source_text(s) == NULL);
    }
    link_text = "narenas:1";
    setenv("MALLOC_CONF", "narenas:2", 1);
    setenv("JE_MALLOC_CONF", "", 1);
    setenv("TALLY_CONF", "narenas:3", 1);
    check_str(init((struct opt_program){"narenas:4", "narenas:5"}), "");
    memcpy(getenv("MALLOC_CONF"), "overwrite", 9); /* as programs do that write their title there */
    check_str(opt_source_text(OPT_FROM_PROGRAM), "narenas:4");
    check_str(opt_source_text(OPT_FROM_LINK), "narenas:1");
    check_str(opt_source_text(OPT_FROM_MALLOC_CONF), "narenas:2");
    check_str(opt_source_text(OPT_FROM_JE_MALLOC_CONF), "");
    check_str(opt_source_text(OPT_FROM_TALLY_CONF), "narenas:3");
    check_str(opt_source_text(OPT_FROM_PROGRAM_HARDER), "narenas:5");
}

TEST(warnings_name_their_source) {
    clear_environment();
    link_text = "a:2";
    setenv("MALLOC_CONF", "nothing:1", 1);
    setenv("JE_MALLOC_CONF", "je:1", 1);
    setenv("TALLY_CONF", "narenas:x", 1);
    check_str(init((struct opt_program){"b", "c:"}),
              "tally: unknown option 'b' in malloc_conf is ignored\n"
              "tally: unknown option 'a:2' in /etc/malloc.conf is ignored\n"
              "tally: unknown option 'nothing:1' in MALLOC_CONF is ignored\n"
              "tally: unknown option 'je:1' in JE_MALLOC_CONF is ignored\n"
              "tally: invalid value 'x' for option 'narenas' in TALLY_CONF is ignored\n"
              "tally: unknown option 'c:' in malloc_conf_2_conf_harder is ignored\n");
}

TEST(link_of_the_greatest_length_is_cut_and_not_overrun) {
    clear_environment();
    memset(huge, ',', 5000);
    huge[5000] = '\0';
    link_text = huge;
    check_str(init((struct opt_program){0}), "");
    check_eq(strlen(opt_source_text(OPT_FROM_LINK)), 4095);
}

TEST(secure_process_does_not_read_the_environment) {
    clear_environment();
    link_text = "depot_bytes:9";
    setenv("MALLOC_CONF", "narenas:2,narenas:x", 1);
    setenv("JE_MALLOC_CONF", "zero:true", 1);
    setenv("TALLY_CONF", "all_slow:true", 1);
    setenv("MIMALLOC_VERBOSE", "1", 1);
    setenv("MIMALLOC_PURGE_DELAY", "3", 1);
    setenv("MIMALLOC_USE_NUMA_NODES", "3", 1);
    os_facts.secure = true;
    struct capture capture = capture_begin();
    opt_init((struct opt_program){"stats_interval:8", NULL});
    check_str(capture_end(capture), "");
    check_eq(opt.narenas, 4 * os_facts.cpus);
    check_eq(opt.all_slow, 0);
    check_eq(opt.confirm_conf, 0);
    check_eq(opt.dirty_decay_ms, 1000);
    check(opt_source_text(OPT_FROM_MALLOC_CONF) == NULL);
    check(opt_source_text(OPT_FROM_TALLY_CONF) == NULL);
    /* What belongs to the program and to root is read. */
    check_eq(opt.stats_interval, 8);
    check_eq(opt.depot_bytes, 9);
}

/* ---------------------------------------------------------------- confirm and abort */

TEST(confirmation_lists_sources_and_what_they_set) {
    clear_environment();
    setenv("MALLOC_CONF", "narenas:2,what:1,hpa:true,lg_chunk:22", 1);
    check_str(init((struct opt_program){"depot_bytes:8", "confirm_conf:true"}),
              "tally: malloc_conf #1 (string specified at build time): \"\"\n"
              "tally: malloc_conf #2 (string pointed to by the global variable malloc_conf):"
              " \"depot_bytes:8\"\n"
              "tally: -- Set conf value: depot_bytes:8\n"
              "tally: malloc_conf #4 (value of the environment variable MALLOC_CONF):"
              " \"narenas:2,what:1,hpa:true,lg_chunk:22\"\n"
              "tally: -- Set conf value: narenas:2\n"
              "tally: unknown option 'what:1' in MALLOC_CONF is ignored\n"
              "tally: -- Set conf value: hpa:true (without effect)\n"
              "tally: option 'lg_chunk:22' in MALLOC_CONF has no effect\n"
              "tally: malloc_conf #7 (string pointed to by the global variable"
              " malloc_conf_2_conf_harder): \"confirm_conf:true\"\n"
              "tally: -- Set conf value: confirm_conf:true\n");
    setenv("TALLY_CONF", "confirm_conf:false", 1);
    check_eq(count_lines(init((struct opt_program){"confirm_conf:true", NULL})), 2);
}

TEST(abort_conf_ends_the_program_after_all_mistakes) {
    clear_environment();
    setenv("MALLOC_CONF", "a:1,narenas:x", 1);
    setenv("TALLY_CONF", "zero:2", 1);
    struct opt_program program = {"abort_conf:true", "c"};
    check_dies(opt_init(program),
               "tally: unknown option 'a:1' in MALLOC_CONF is ignored\n"
               "tally: invalid value 'x' for option 'narenas' in MALLOC_CONF is ignored\n"
               "tally: invalid value '2' for option 'zero' in TALLY_CONF is ignored\n"
               "tally: unknown option 'c' in malloc_conf_2_conf_harder is ignored\n"
               "tally: abort_conf:true, and the configuration has mistakes (see above)\n",
               SIGABRT);
    program = (struct opt_program){NULL, "abort_conf:true"};
    check_dies(opt_init(program), "(see above)", SIGABRT);
}

TEST(abort_conf_tolerates_keys_that_come_and_go) {
    clear_environment();
    struct opt_program program = {"abort_conf:true,experimental_nothing:1,experimental_tcache_gc:2,"
                                  "hpa_sec_bytes_after_flush:x,hpa_sec_batch_fill_extra:x,"
                                  "lg_chunk:2,hpa:true,narenas:100000",
                                  NULL};
    check_eq(count_lines(init(program)), 6);
    check_eq(opt.abort_conf, 1);
    setenv("MALLOC_CONF", "abort_conf:false,a:1", 1);
    check_eq(count_lines(init(program)), 7);
}

TEST(abort_conf_counts_wrong_variables_and_dependencies) {
    clear_environment();
    struct opt_program program = {"abort_conf:true,prof_leak_error:true", NULL};
    check_dies(opt_init(program), "needs 'prof_final'", SIGABRT);
    setenv("MIMALLOC_SHOW_STATS", "?", 1);
    program.conf = "abort_conf:true";
    check_dies(opt_init(program), "of MIMALLOC_SHOW_STATS is ignored", SIGABRT);
}
