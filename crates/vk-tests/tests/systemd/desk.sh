#!/bin/bash
# Runs what comes over the second serial line, a script a line, and answers each with its exit code
# and what it said, both ways in base64.
stty -F /dev/ttyS1 raw -echo
exec 3<>/dev/ttyS1
printf 'ready\n' >&3
while read -r line <&3; do
    base64 -d <<<"$line" >/run/desk.sh
    said=$(bash /run/desk.sh 2>&1 </dev/null 3>&-)
    code=$?
    printf '%s %s\n' "$code" "$(base64 -w0 <<<"$said")" >&3
done
