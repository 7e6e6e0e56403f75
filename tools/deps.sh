#!/bin/bash
# SPDX-License-Identifier: MIT
#
# deps.sh - install what is missing for `build`, `demo`, `test` or `bench`; silent when nothing is.
#
# Each row names a Debian package, what shows that it is there (a command, or a file when it holds
# a slash; `|` separates alternatives), and whether the group can do without it.  A missing
# optional package makes one line of text and some tests skip themselves; a missing required one
# makes this script fail.  Set TALLY_INSTALL=no to look and not touch.
set -u

#     group  package               shown by                                    need
TABLE="
      build  gcc                   cc|gcc|clang                                required
      build  libc6-dev             /usr/include/stdio.h                        required
      build  binutils              objcopy                                     required
      build  cmake                 cmake                                       required
      build  zlib1g-dev            /usr/include/zlib.h                         required
      build  libdw-dev             /usr/include/elfutils/libdw.h               required
      build  ninja-build           ninja                                       optional
      demo   python3               python3                                     required
      demo   sqlite3               sqlite3                                     required
      test   python3               python3                                     required
      test   g++                   g++                                         optional
      test   clang                 clang                                       optional
      test   clang-format          clang-format                                optional
      test   clang-tidy            clang-tidy                                  optional
      test   gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc                       optional
      test   libc6-dev-arm64-cross /usr/aarch64-linux-gnu/include/stdio.h      optional
      test   valgrind              valgrind                                    optional
      test   sqlite3               sqlite3                                     optional
      test   perl                  perl                                        optional
      test   git                   git                                         optional
      test   php-cli               php                                         optional
      test   libjemalloc-dev       /usr/include/jemalloc/jemalloc.h            optional
      test   google-perftools      google-pprof                                optional
      test   libgoogle-perftools-dev /usr/include/gperftools/tcmalloc.h         optional
      test   golang-go             go                                          optional
      test   graphviz              dot                                         optional
      test   redis-server          redis-server                                optional
      test   redis-tools           redis-benchmark                             optional
      test   strace                strace                                      optional
      test   xz-utils              xz                                          optional
      test   file                  file                                        optional
      test   procps                pgrep                                       optional
      test   bc                    bc                                          optional
      test   bzip2                 bzip2                                       optional
      test   curl                  curl                                        optional
      test   gawk                  gawk                                        optional
      test   gpg                   gpg                                         optional
      test   jq                    jq                                          optional
      test   libxml2-utils         xmllint                                     optional
      test   m4                    m4                                          optional
      test   openssl               openssl                                     optional
      test   tcl                   tclsh                                       optional
      test   zstd                  zstd                                        optional
      test   ruby-stackprof        /usr/lib/*/rubygems-integration/*/gems/stackprof-*/vendor/FlameGraph/flamegraph.pl optional
      bench  python3               python3                                     required
      bench  valgrind              valgrind                                    optional
      bench  sqlite3               sqlite3                                     optional
      bench  perl                  perl                                        optional
      bench  xz-utils              xz                                          optional
      bench  redis-server          redis-server                                optional
      bench  redis-tools           redis-benchmark                             optional
      bench  libjemalloc2          /usr/lib/*/libjemalloc.so.2                 optional
      bench  libmimalloc2.0        /usr/lib/*/libmimalloc.so.2                 optional
      bench  libtcmalloc-minimal4  /usr/lib/*/libtcmalloc_minimal.so.4         optional
      bench  libtbbmalloc2         /usr/lib/*/libtbbmalloc_proxy.so.2          optional
"
# A service that comes with a package must not start because we installed it.
SERVICES="redis-server"
POLICY=/usr/sbin/policy-rc.d

present() {
    local one
    for one in ${1//|/ }; do # unquoted: a file may be given by a pattern
        if [[ $one == */* ]]; then
            [ -e "$one" ] && return 0
        else
            command -v "$one" >/dev/null && return 0
        fi
    done
    return 1
}

# missing GROUP NEED: the packages of the group that are not there.
missing() {
    local group package shown need
    while read -r group package shown need; do
        if [ "$group" = "$1" ] && [ "$need" = "$2" ] && ! present "$shown"; then
            echo "$package"
        fi
    done <<<"$TABLE"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        env "$@"
    elif [ -t 0 ]; then
        sudo env "$@"
    else
        sudo -n env "$@"
    fi
}

apt() {
    as_root DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o Acquire::Retries=1 \
        -o Acquire::http::Timeout=30 -o DPkg::Lock::Timeout=120 "$@" >/dev/null 2>&1
}

hold_services() {
    if [ ! -e $POLICY ]; then
        as_root sh -c "printf '#!/bin/sh\nexit 101\n' >$POLICY && chmod 755 $POLICY"
        trap 'as_root rm -f $POLICY' EXIT
    fi
}

# All at once is fast; one by one saves the rest when a single package cannot be had.
install_packages() {
    local package service
    apt update
    hold_services
    if ! apt install --no-install-recommends "$@"; then
        for package in "$@"; do
            apt install --no-install-recommends "$package"
        done
    fi
    for service in $SERVICES; do
        if [[ " $* " == *" $service "* ]] && [ -d /run/systemd/system ]; then
            as_root systemctl disable --now "$service" >/dev/null 2>&1
        fi
    done
}

can_install() {
    [ "${TALLY_INSTALL:-yes}" != no ] && command -v apt-get >/dev/null &&
        { [ "$(id -u)" = 0 ] || command -v sudo >/dev/null; }
}

group=${1:-build}
wanted=$(missing "$group" required; missing "$group" optional)
if [ -z "$wanted" ]; then
    exit 0
fi
if can_install; then
    echo "deps: installing" $wanted
    install_packages $wanted
    hash -r
fi
required=$(missing "$group" required)
optional=$(missing "$group" optional)
if [ -n "$optional" ]; then
    echo "deps: could not install" $optional "(optional: what needs it is skipped)"
fi
if [ -n "$required" ]; then
    echo "deps: cannot $group without" $required >&2
    exit 1
fi
