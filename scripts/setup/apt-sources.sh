#!/usr/bin/env bash
# The sources a machine takes its own release from, as its apt has them, with their options (keys,
# trust, mirrors): apt-sources.sh RELEASE OUT-FOLDER [ETC-APT]
#
# Writes one-line.list and deb822.sources into the folder, each only where there is something in it:
# the entries whose address apt names for the release, its updates or its security updates, and for
# the component main. Other entries (other vendors, source packages) are left out.
set -euo pipefail

release=$1 out=$2 etc=${3:-/etc/apt}

# shellcheck disable=SC2016 # apt fills these in
LC_ALL=C apt-get indextargets --format '$(CREATED_BY) $(COMPONENT) $(CODENAME) $(SITE) $(REPO_URI)' |
    awk -v release="$release" '$1 == "Packages" && $2 == "main" &&
        ($3 == release || $3 == release "-updates" || $3 == release "-security") {
            print $4; print $5 }' |
    sed 's,/*$,,' | sort -u >"$out/addresses"
[ -s "$out/addresses" ] || exit 0

for file in "$etc/sources.list" "$etc"/sources.list.d/*.list; do
    [ -r "$file" ] || continue
    awk 'NR == FNR { known[$0]; next }
        $1 == "deb" {
            for (i = 2; i <= NF; i++) {
                address = $i
                sub(/\/+$/, "", address)
                if (address in known) { print; next }
            }
        }' "$out/addresses" "$file" >>"$out/one-line.list"
done
for file in "$etc"/sources.list.d/*.sources; do
    [ -r "$file" ] || continue
    # Entries of this form are paragraphs.
    awk 'NR == FNR { known[$0]; next }
        /(^|\n)Enabled:[ \t]*no/ { next }
        {
            count = split($0, words, /[ \t\n]+/)
            for (i = 1; i <= count; i++) {
                sub(/\/+$/, "", words[i])
                if (words[i] in known) { print; next }
            }
        }' RS='\n' "$out/addresses" RS= ORS='\n\n' "$file" |
        sed 's/^Types:.*/Types: deb/' >>"$out/deb822.sources"
done
find "$out" \( -name '*.list' -o -name '*.sources' \) -empty -delete
