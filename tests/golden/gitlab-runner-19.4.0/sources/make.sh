#!/bin/sh
# Makes the repositories of the jobs with submodules and files of Git LFS below the current
# directory: `sh make.sh HOST`, where HOST is GitLab's as URLs of SSH name it. Commits have the same
# numbers each time, but for those of `tree`, of which a file names the host.
set -eu
host=$1
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=lab GIT_AUTHOR_EMAIL=lab@example.com GIT_AUTHOR_DATE=2026-01-02T03:04:05Z
export GIT_COMMITTER_NAME=lab GIT_COMMITTER_EMAIL=lab@example.com
export GIT_COMMITTER_DATE=2026-01-02T03:04:05Z

# REPOSITORY [FORMAT]: with one file.
begin() {
    git init --quiet --initial-branch main --object-format "${2:-sha1}" "$1"
    echo "of $1" > "$1/$1.txt"
    git -C "$1" add .
}

# REPOSITORY FILE TEXT: a file whose text is kept by LFS; git has its pointer.
large() {
    printf '%s' "$3" > "$1/text"
    sum=$(sha256sum < "$1/text" | cut -d ' ' -f 1)
    folder=$1/.git/lfs/objects/$(echo "$sum" | cut -c 1-2)/$(echo "$sum" | cut -c 3-4)
    mkdir -p "$folder"
    mv "$1/text" "$folder/$sum"
    printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %s\n' \
        "$sum" "${#3}" > "$1/$2"
    echo '*.bin filter=lfs diff=lfs merge=lfs -text' > "$1/.gitattributes"
    git -C "$1" add .
}

# REPOSITORY NAME URL OTHER: a submodule.
part() {
    git -C "$1" config --file .gitmodules "submodule.$2.path" "$2"
    git -C "$1" config --file .gitmodules "submodule.$2.url" "$3"
    git -C "$1" add .gitmodules
    git -C "$1" update-index --add --cacheinfo "160000,$(git -C "$4" rev-parse HEAD),$2"
}

commit() {
    git -C "$1" commit --quiet --message "One commit"
}

begin leaf
commit leaf
begin closed
commit closed
begin part
large part part.bin "large, and of a part"
part part leaf ../leaf.git leaf
commit part
begin tree
large tree tree.bin "large, and of the tree"
part tree part ../part.git part
part tree by-ssh "git@$host:lab/leaf.git" leaf
part tree closed ../closed.git closed
commit tree
git -C tree tag v1
begin long sha256
commit long
