/* SPDX-License-Identifier: MIT
 *
 * program_conf.c - a program that configures the library by its own variables; test_conf.sh
 * compiles it, linked in several ways.
 *
 * Its words are wrong on purpose: the warnings name the sources in the order in which they are read.
 * With USES_HEADERS it is linked with the parser alone, and tells what the string of the build has
 * set.
 */
#include <stdlib.h>

#ifdef USES_HEADERS
#include <string.h>

#include "opt/opt.h"
#include "base/os.h"

int main(void) {
    os_init();
    opt_init((struct opt_program){NULL, NULL});
    bool known = strcmp(opt_source_text(OPT_FROM_BUILD), TALLY_MALLOC_CONF) == 0;
    return known && opt.zero == 1 ? 0 : 1;
}
#else
extern const char *malloc_conf;
extern const char *malloc_conf_2_conf_harder;
const char *malloc_conf = "zero:program";
const char *malloc_conf_2_conf_harder = "zero:harder";

int main(void) {
    char *volatile p = malloc(100);
    free(p);
    return p != NULL ? 0 : 1;
}
#endif
