//! What differs, job by job of the example, in the order of the lines.

use crate::differences::{
    ARTIFACTS, Difference, EXECUTOR, EXIT, GUEST, PLATFORM, begin, difference, download, exit,
    first_tree, missing_in, sent,
};

const CACHES: &str = "The log of caches";
const SETTINGS: &str = "Settings that cannot be followed";
pub(crate) const SOURCES: &str = "Sources that failed";
pub(crate) const SUBMODULES: &str = "Submodules";
const TIMEOUTS: &str = "Timeouts";

/// The example's project.
const PROJECT: &str = "parity";
/// How a failed job's last line begins.
pub(crate) const FAILED: &str = "00O ^[31;1mERROR: Job failed: ";
const NO_DOWNLOAD: &str = "01E No URL provided, cache will not be downloaded from shared cache \
                           server. Instead a local version of cache will be extracted.^[0;m ";
const NO_UPLOAD: &str = "01E No URL provided, cache will not be uploaded to shared cache server. \
                         Cache will be stored only locally.^[0;m ";
const NO_CACHE: &str = "01E ^[0;33mWARNING: Cache file does not exist                ^[0;m ";

/// What is expected of a job.
pub(crate) fn of(job: &str) -> Vec<Difference> {
    // All but its commands is left aside.
    if job == "script:debug" {
        return Vec::new();
    }
    let mut list = begin("debian:12");
    match job {
        "settings:submodules" => return submodules_of_no_kind(list),
        "git:clone-path-outside" => {
            list.truncate(2);
            let line = |name| format!("00O+^[0K^[36;1mPreparing the \"{name}\" executor^[0;m^[0;m");
            list.push(difference(EXECUTOR, &[&line("shell")], &[&line("vk")]));
            return list;
        }
        // There is no repository.
        "git:none" | "git:empty" => _ = list.pop(),
        // There is none yet.
        "git:attempts" | "cancel:sources" => _ = list.pop(),
        // It says where.
        "git:clone-path" => {}
        _ => list.push(first_tree(PROJECT)),
    }
    if job.starts_with("cache:") {
        caches(job, &mut list);
    } else if job.starts_with("artifacts:") {
        artifacts(job, &mut list);
    } else {
        others(job, &mut list);
    }
    if job == "script:unstamped" {
        list = list.into_iter().map(Difference::unstamped).collect();
    }
    list
}

fn others(job: &str, list: &mut Vec<Difference>) {
    match job {
        "exit:allowed" | "after:both" => list.push(exit(FAILED, 3)),
        "exit:pipe" => list.push(exit(FAILED, 4)),
        "exit:killed" => {
            list.push(difference(
                GUEST,
                &["01E bash: line *: * Killed                  sh -c 'kill -KILL $$'"],
                &["01E /usr/bin/bash: line *: * Killed                  sh -c 'kill -KILL $$'"],
            ));
            list.push(exit(FAILED, 137));
        }
        "exit:unknown" => list.push(exit(FAILED, 127)),
        "after:counts" => list.push(exit(FAILED, 5)),
        "release:failed" => list.push(exit(FAILED, 9)),
        "timeout:script" => list.extend(sent("archive", 15)),
        "timeout:after" => {
            let line = |why: &str| {
                format!(
                    "00O ^[0;33mWARNING: after_script failed, but job will continue unaffected: \
                     {why}^[0;m"
                )
            };
            let (stock, ours) = (line("exit status 1"), line("context deadline exceeded"));
            list.push(difference(TIMEOUTS, &[&stock], &[&ours]));
        }
        "timeout:job" => {
            list.push(difference(TIMEOUTS, &["01E Terminated"], &[]));
            let hint = "00O ^[0;33mWARNING: the job's timeout ends the job at once: with \
                        RUNNER_SCRIPT_TIMEOUT below it, only the script ends, and after_script, \
                        caches and artifacts follow^[0;m";
            list.push(difference(TIMEOUTS, &[], &[hint]));
        }
        "cancel" => list.extend(sent("archive", 18)),
        "cancel:after" => list.extend(sent("archive", 59)),
        "cancel:sources" => list.push(difference(TIMEOUTS, &["01E Terminated"], &[])),
        "git:submodules" => list.push(difference(
            SUBMODULES,
            &["01O ^[32;1mConfiguring submodules to use parent git credentials...^[0;m"],
            &[],
        )),
        "git:attempts" => {
            list.push(difference(
                SOURCES,
                &["01E bash: line *: cd: /builds/<token>/0/lab/parity: No such file or directory"],
                &[
                    "01O ^[32;1mUploading artifacts...^[0;m",
                    "01E ^[31;1mFATAL: the guest cannot make an archive: open /builds/lab/parity: \
                     No such file or directory (os error 2)^[0;m ",
                ],
            ));
            list.push(exit(FAILED, 6));
        }
        _ => {}
    }
}

/// It fails in both, in another stage.
fn submodules_of_no_kind(mut list: Vec<Difference>) -> Vec<Difference> {
    const WHY: &str = "GIT_SUBMODULE_STRATEGY: expected either 'normal', 'recursive' or 'none' got \
                       \"sideways\"";
    list.truncate(2);
    let said = format!("00O ^[0;33mWARNING: {WHY}^[0;m");
    list.push(difference(SETTINGS, &[&said], &[]));
    list.extend(ended_by_settings("unknown GIT_SUBMODULE_STRATEGY", WHY));
    list
}

/// A job that ends in gitlab-runner's get_sources, and before its VM is booted in ours.
pub(crate) fn ended_by_settings(stock: &str, ours: &str) -> [Difference; 2] {
    let begin = difference(
        SETTINGS,
        &[
            "00O+^[0K^[36;1mPreparing the \"shell\" executor^[0;m^[0;m",
            "00O ^[0KUsing Shell (bash) executor...^[0;m",
        ],
        &["00O+^[0K^[36;1mPreparing the \"vk\" executor^[0;m^[0;m"],
    );
    let end = difference(
        SETTINGS,
        &[
            "00O+section_start:<time>:prepare_script^M^[0K",
            "00O+^[0K^[36;1mPreparing environment^[0;m^[0;m",
            "01O Running on runner-host...",
            "00O section_end:<time>:prepare_script^M^[0K",
            "00O+section_start:<time>:cleanup_file_variables^M^[0K",
            "00O+^[0K^[36;1mCleaning up project directory and file based variables^[0;m^[0;m",
            "00O section_end:<time>:cleanup_file_variables^M^[0K",
            &format!("00O ^[31;1mERROR: Job failed (system failure): {stock}^[0;m"),
        ],
        &[&format!("{FAILED}{ours}^[0;m")],
    );
    [begin, end]
}

fn hit(key: &str) -> Difference {
    let ours = format!("01E Cache hit for {key}: * B, saved * ago^[0;m  digest^[0;m=sha256:*");
    difference(CACHES, &[PLATFORM, NO_DOWNLOAD], &[&ours])
}

fn miss(key: &str) -> Difference {
    let ours = format!("01E ^[0;33mWARNING: Cache miss for {key}: nothing is saved for it^[0;m ");
    difference(CACHES, &[PLATFORM, NO_DOWNLOAD, NO_CACHE], &[&ours])
}

/// Kept, with its begin; `how` is what the line says of its size.
fn saved(key: &str, how: &str) -> [Difference; 2] {
    let ours = format!("01E Cache {key} is saved: {how}^[0;m  digest^[0;m=sha256:*");
    [
        difference(CACHES, &[PLATFORM], &[]),
        difference(CACHES, &[NO_UPLOAD], &[&ours]),
    ]
}

const SENT: &str = "* B of * files and directories, * B";
const THERE: &str = "its * B were at the registry already";

fn caches(job: &str, list: &mut Vec<Difference>) {
    let (parity, nobody) = ("parity-main-non_protected", "nobody-non_protected");
    match job {
        "cache:keep" => {
            list.push(miss(parity));
            list.extend(saved(parity, SENT));
        }
        "cache:take" => list.push(hit(parity)),
        "cache:miss" => {
            list.push(miss(nobody));
            list.push(difference(CACHES, &[PLATFORM], &[]));
            list.push(missing_in(PROJECT, "nothing/"));
        }
        "cache:fallback" => {
            list.push(miss(nobody));
            list.push(miss("nobody-either-non_protected"));
            list.push(hit(parity));
        }
        "cache:last-resort" => {
            list.push(miss(nobody));
            list.push(hit(parity));
        }
        "cache:push" => list.extend(saved("pushed-non_protected", SENT)),
        "cache:several" => several(list),
        "cache:failed" => {
            list.push(miss("on-success-non_protected"));
            list.push(miss("on-failure-non_protected"));
            list.push(miss("always-non_protected"));
            list.extend(saved("on-failure-non_protected", SENT));
            list.extend(saved("always-non_protected", THERE));
            list.push(exit(FAILED, 7));
        }
        "cache:wrong" => wrong_policy(list),
        "cache:refused-fallback" => list.push(miss(nobody)),
        "cache:odd-fallback" => odd_fallback(list),
        other => panic!("no list for {other}"),
    }
}

fn odd_fallback(list: &mut Vec<Difference>) {
    const KEY: &str = "odd-fallback-non_protected";
    let said = "00O ^[0;33mWARNING: CACHE_COMPRESSION_LEVEL: expected one of 'fastest', 'fast', \
                'default', 'slow' or 'slowest' got \"utmost\", using default value 'default'^[0;m";
    // Behind the begin, as what is wrong with other settings.
    list.insert(2, difference(CACHES, &[], &[said]));
    list.push(miss(KEY));
    let stock = "01E ^[0;33mWARNING: compression level \"utmost\" is invalid, falling back to \
                 default^[0;m ";
    let [begin, line] = saved(KEY, SENT);
    list.push(begin);
    list.push(difference(CACHES, &[stock], &[]));
    list.push(line);
}

fn several(list: &mut Vec<Difference>) {
    let (pushed, odd) = ("pushed-non_protected", "odd/key/.-non_protected");
    let changed = "01O ^[0;33mcache key \"../odd\\\\key/.-non_protected\" sanitized to \
                   \"odd/key/.-non_protected\"^[0;m";
    let said = "00O ^[0;33mWARNING: cache key \"../odd\\\\key/.-non_protected\" was \
                sanitized^[0;m";
    // Before all else: the daemon says it.
    list.insert(0, difference(CACHES, &[], &[said]));
    list.push(difference(CACHES, &[changed], &[]));
    list.push(hit(pushed));
    list.push(miss(odd));
    list.push(difference(CACHES, &[changed], &[]));
    list.extend(saved(pushed, SENT));
    list.extend(saved(odd, SENT));
}

/// It fails there; here, it is as if it said nothing.
fn wrong_policy(list: &mut Vec<Difference>) {
    let said = "00O ^[0;33mWARNING: cache policy \"$HOW\" is unknown; pull-push is used^[0;m";
    list.insert(0, difference(SETTINGS, &[], &[said]));
    list.push(difference(
        SETTINGS,
        &[],
        &[
            "00O+section_start:<time>:restore_cache^M^[0K",
            "00O+^[0K^[36;1mRestoring cache^[0;m^[0;m",
            "01O ^[32;1mChecking cache for wrong-non_protected...^[0;m",
            "01O ^[0;33mFailed to extract cache^[0;m",
            "01E ^[0;33mWARNING: Cache miss for wrong-non_protected: nothing is saved for it^[0;m ",
            "00O section_end:<time>:restore_cache^M^[0K",
            "00O+section_start:<time>:step_script^M^[0K",
            "00O+^[0K^[36;1mExecuting \"step_script\" stage of the job script^[0;m^[0;m",
            "01O ^[32;1m$ echo \"not reached by gitlab-runner\"^[0;m",
            "01O not reached by gitlab-runner",
            "00O section_end:<time>:step_script^M^[0K",
            "00O+section_start:<time>:archive_cache^M^[0K",
            "00O+^[0K^[36;1mSaving cache for successful job^[0;m^[0;m",
            "01O ^[32;1mCreating cache wrong-non_protected...^[0;m",
            "01O ^[32;1mCreated cache^[0;m",
            "01E src/one.txt: found 1 matching artifact files and directories^[0;m ",
            &format!("01E Cache wrong-non_protected is saved: {SENT}^[0;m  digest^[0;m=sha256:*"),
            "00O section_end:<time>:archive_cache^M^[0K",
        ],
    ));
    list.push(difference(
        SETTINGS,
        &[
            "00O ^[31;1mERROR: Job failed (system failure): unknown cache policy sideways for \
             wrong-non_protected^[0;m",
        ],
        &["00O ^[32;1mJob succeeded^[0;m"],
    ));
}

fn artifacts(job: &str, list: &mut Vec<Difference>) {
    match job {
        "artifacts:make" => list.extend(sent("archive", 39)),
        "artifacts:take" => list.extend([download(39), download(45)]),
        "artifacts:patterns" => {
            list.extend(sent("archive", 41));
            let last = list.pop();
            list.push(missing_in(PROJECT, "a/[0-9].txt"));
            let found = |dir: &str| {
                format!("01E {dir}/run.sh: found 1 matching artifact files and directories^[0;m ")
            };
            list.push(difference(
                crate::differences::DIRECTORY,
                &[&found("/builds/<token>/0/lab/parity")],
                &[&found("/builds/lab/parity")],
            ));
            list.push(missing_in(PROJECT, "missing/*"));
            list.extend(last);
        }
        "artifacts:untracked" => list.extend(sent("archive", 42)),
        "artifacts:nothing" => {
            list.push(difference(ARTIFACTS, &[PLATFORM], &[]));
            list.push(missing_in(PROJECT, "nothing"));
        }
        "artifacts:repository" => {
            list.extend(sent("archive", 44));
            let last = list.pop();
            let ours = [
                "01E ^[0;33mWARNING: Part of .git directory is on the list of files to \
                 archive^[0;m ",
                "01E ^[0;33mWARNING: This may introduce unexpected problems   ^[0;m ",
            ];
            list.push(difference(ARTIFACTS, &[], &ours));
            list.extend(last);
        }
        "artifacts:reports" => {
            for kind in ["archive", "dotenv"] {
                list.extend(sent(kind, 45));
            }
            list.extend(sent("junit", 45));
            let last = list.pop();
            list.push(missing_in(PROJECT, "none.xml"));
            list.extend(last);
            for kind in ["lsif", "terraform"] {
                list.extend(sent(kind, 45));
            }
        }
        "artifacts:failed" => {
            for kind in ["archive", "junit"] {
                list.extend(sent(kind, 46));
            }
            list.push(exit(FAILED, 8));
        }
        "artifacts:not-now" => {}
        "artifacts:odd" => odd_names(list),
        "artifacts:two-raw" => {
            list.extend(sent("archive", 48));
            list.extend(unfit(
                "terraform",
                "only one file can be sent as raw",
                "only one file can be sent as raw",
                "           ",
            ));
        }
        "artifacts:zipped-directory" => list.extend(unfit(
            "junit",
            "the \"src\" is not a regular file",
            "the \"src/\" is not a regular file: gzip holds only such",
            "",
        )),
        other => panic!("no list for {other}"),
    }
}

/// Names that a shell would run something for.
fn odd_names(list: &mut Vec<Difference>) {
    let warning = |text: &str| format!("01E ^[0;33mWARNING: {text}^[0;m ");
    let outside =
        warning("isExcluded: artifact path is not a subpath of project directory: ../outside/*");
    list.push(difference(
        ARTIFACTS,
        &[
            PLATFORM,
            &warning("invalid artifact name: unexpected command substitution at 1:6"),
            &warning("invalid path \"\": unexpected command substitution at 1:5"),
            &outside,
            &outside,
        ],
        &[&warning(
            "invalid path: a command (`…`) is not allowed here",
        )],
    ));
    list.push(missing_in(PROJECT, "src/`echo one`.txt"));
    list.push(difference(
        ARTIFACTS,
        &[],
        &[
            &warning("File ignored: odd/pipe: neither a file, a directory nor a symlink"),
            &warning("invalid artifact name: a command or arithmetic ($(…)) is not allowed here"),
        ],
    ));
    list.extend(sent("archive", 57).pop());
}

/// Files that a format does not take: three tries there, one here.
fn unfit(kind: &str, stock: &str, ours: &str, fill: &str) -> Vec<Difference> {
    let error = format!(
        "01E ^[31;1mERROR: Uploading artifacts as \"{kind}\" to coordinator... error^[0;m  *{stock}*"
    );
    let again =
        format!("01E ^[0;33mWARNING: Retrying...                              ^[0;m  *{stock}*");
    let fatal = format!("01E ^[31;1mFATAL: *{stock}^[0;m ");
    let line = format!("01E ^[31;1mFATAL: {ours}{fill}^[0;m ");
    vec![
        difference(ARTIFACTS, &[PLATFORM], &[]),
        difference(
            ARTIFACTS,
            &[&error, &again, &error, &again, &error, &fatal],
            &[&line],
        ),
        difference(
            EXIT,
            &[&format!("{FAILED}exit status 1^[0;m")],
            &[&format!("{FAILED}{ours}^[0;m")],
        ),
    ]
}
