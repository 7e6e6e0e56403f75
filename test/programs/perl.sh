#!/bin/sh
# SPDX-License-Identifier: MIT
#
# perl under the library: growing strings, hashes of arrays, sorting, regular expressions, fork
# and pipes.

# shellcheck source=test/lib/under_tally.sh
. "$(dirname -- "$0")/../lib/under_tally.sh"

need perl
prove_preload

cat >"$scratch/script.pl" <<'PERL'
use strict;
use warnings;

my $state = 12345;
sub next_number { return $state = ($state * 1103515245 + 12345) % 2147483648; }

my %table;
for my $i (1 .. 60000) {
    my $key = "key" . next_number() % 5000;
    push @{ $table{$key} }, "value $i " . "y" x (next_number() % 100);
    delete $table{"key" . next_number() % 5000} if $i % 3 == 0;
}
my $bytes = 0;
$bytes += length($_) for map { @$_ } values %table;
print "table ", scalar(keys %table), " $bytes\n";

my $text = join ",", map { join ";", @{ $table{$_} } } sort keys %table;
my $count = () = $text =~ /value \d*7 y{3,9}\b/g;
(my $shorter = $text) =~ s/y+//g;
print "text ", length($text), " $count ", length($shorter), " ", unpack("%32C*", $text), "\n";

my @sorted = sort { length($a) <=> length($b) || $a cmp $b } split /[,;]/, $text;
print "sorted $sorted[0] $sorted[-1]\n";

for my $child (1 .. 5) {
    my $pid = open(my $pipe, "-|");
    die "fork: $!" unless defined $pid;
    if ($pid == 0) {
        my @grown = map { "z" x ($_ % 977) } 1 .. 5000 * $child;
        print length(join "", @grown), "\n";
        exit 0;
    }
    chomp(my $line = <$pipe>);
    close $pipe or die "child: $?";
    print "child $child $line\n";
}
print "end\n";
PERL

under_libc PERL_HASH_SEED=0 perl - <"$scratch/script.pl" >"$scratch/libc" ||
    fail "perl fails under libc"
run_held "$scratch/script.pl" "$scratch/tally" PERL_HASH_SEED=0 perl -
same_output perl "$scratch/libc" "$scratch/tally"
[ "$(tail -n 1 "$scratch/tally")" = end ] || fail "perl did not finish its script"
echo "perl: $(wc -l <"$scratch/tally") lines as under libc"
