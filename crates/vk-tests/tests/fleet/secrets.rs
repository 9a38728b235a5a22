//! Secrets of a job in a real VM: where they are not, during the job and after it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::{Value, json};

use crate::fleet::{Fleet, test_root};
use crate::program::{eventually, processes_of};
use crate::settings::Settings;

/// Long enough that no form of it is there by chance; a character that URLs escape, and some that
/// base64 spells otherwise where they are shifted.
const VALUE: &str = "vK9+Zq7/Rw2=Tm4.Xc8@Jd5";

/// A secret in the forms in which it might have been kept.
pub(crate) struct Wanted {
    what: &'static str,
    forms: Vec<(&'static str, Vec<u8>)>,
}

impl Wanted {
    pub(crate) fn new(what: &'static str, secret: &str) -> Self {
        let mut forms = vec![("as it is", secret.as_bytes().to_vec())];
        let escaped: String = secret.bytes().map(escaped).collect();
        forms.push(("URL-escaped", escaped.to_lowercase().into_bytes()));
        forms.push(("URL-escaped", escaped.into_bytes()));
        for before in 0..3 {
            forms.push(("base64", inner_base64(before, secret)));
        }
        let doubled: Vec<u8> = secret.bytes().flat_map(|byte| [byte, 0]).collect();
        forms.push(("UTF-16", doubled));
        let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        forms.push(("hex", hex.into_bytes()));
        Self { what, forms }
    }

    pub(crate) fn in_bytes(&self, bytes: &[u8]) -> Option<String> {
        let found = self.forms.iter().find(|(_, form)| holds(bytes, form));
        found.map(|(how, _)| format!("{} ({how})", self.what))
    }
}

fn escaped(byte: u8) -> String {
    match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    }
}

/// The base64 of a secret behind so many other bytes, less what depends on its neighbours.
fn inner_base64(before: usize, secret: &str) -> Vec<u8> {
    let shifted = format!("{}{secret}", "?".repeat(before));
    let whole = STANDARD_NO_PAD.encode(&shifted);
    let from = (before * 8).div_ceil(6);
    let to = shifted.len() * 8 / 6;
    whole.as_bytes()[from..to].to_vec()
}

fn holds(bytes: &[u8], form: &[u8]) -> bool {
    let first = form[0];
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| *byte == first) {
        if rest[at..].starts_with(form) {
            return true;
        }
        rest = &rest[at + 1..];
    }
    false
}

/// Looks for the secrets in every file below a path; the bytes looked at.
pub(crate) fn search(path: &Path, wanted: &[Wanted], found: &mut Vec<String>) -> u64 {
    // A file of a program that runs may go at any time.
    let Ok(about) = fs::symlink_metadata(path) else {
        return 0;
    };
    if about.is_dir() {
        let entries = fs::read_dir(path).unwrap();
        return entries
            .map(|entry| search(&entry.unwrap().path(), wanted, found))
            .sum();
    }
    if !about.is_file() {
        return 0;
    }
    let bytes = match data_of(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return 0,
        read => read.unwrap(),
    };
    let here = wanted.iter().filter_map(|one| one.in_bytes(&bytes));
    found.extend(here.map(|what| format!("{what} in {}", path.display())));
    bytes.len() as u64
}

/// What is in a file, without its holes: a disk's file is larger than memory.
fn data_of(path: &Path) -> std::io::Result<Vec<u8>> {
    use rustix::fs::SeekFrom;
    use std::os::unix::fs::FileExt;
    let file = fs::File::open(path)?;
    let (mut bytes, mut at) = (Vec::new(), 0);
    loop {
        let from = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            // Behind the last byte, or the file became shorter.
            Err(rustix::io::Errno::NXIO) => return Ok(bytes),
            from => from?,
        };
        at = rustix::fs::seek(&file, SeekFrom::Hole(from))?;
        let (old, more) = (bytes.len(), usize::try_from(at - from).unwrap());
        bytes.resize(old + more, 0);
        match file.read_exact_at(&mut bytes[old..], from) {
            // It became shorter.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(bytes),
            read => read?,
        }
    }
}

/// Looks for the secrets in what the host's processes show of themselves; the processes whose
/// environment could be read.
pub(crate) fn search_processes(wanted: &[Wanted], found: &mut Vec<String>) -> usize {
    let mut read = 0;
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let is_process = entry.file_name().to_string_lossy().parse::<u32>().is_ok();
        for name in ["cmdline", "environ"].iter().filter(|_| is_process) {
            let Ok(bytes) = fs::read(entry.path().join(name)) else {
                continue;
            };
            read += usize::from(*name == "environ" && !bytes.is_empty());
            let here = wanted.iter().filter_map(|one| one.in_bytes(&bytes));
            let file = entry.path().join(name);
            let shown = String::from_utf8_lossy(&bytes).replace('\0', " ");
            found.extend(here.map(|what| format!("{what} in {}: {shown}", file.display())));
        }
    }
    read
}

/// The job's own token, from the file that the node keeps while it runs.
fn job_token(start: &Path) -> String {
    let start: Value = serde_json::from_slice(&fs::read(start).unwrap()).unwrap();
    let text = start.to_string();
    let (_, from) = text.split_once("glcbt-").unwrap();
    let token = from.split(['"', '\\']).next().unwrap();
    format!("glcbt-{token}")
}

#[test]
fn every_form_of_a_secret_is_found_wherever_it_lies() {
    let wanted = Wanted::new("it", VALUE);
    for before in 0..4 {
        let text = format!("{}{VALUE} after", "x".repeat(before));
        let escaped: String = text.bytes().map(escaped).collect();
        assert_eq!(
            wanted.in_bytes(escaped.as_bytes()).unwrap(),
            "it (URL-escaped)"
        );
        let encoded = STANDARD_NO_PAD.encode(&text);
        assert_eq!(wanted.in_bytes(encoded.as_bytes()).unwrap(), "it (base64)");
        assert_eq!(wanted.in_bytes(text.as_bytes()).unwrap(), "it (as it is)");
    }
    assert_eq!(wanted.in_bytes(b"vK9+Zq7/Rw2=Tm4.Xc8@Jd6"), None);
}

/// CRED-15, CRED-16
#[test]
fn a_masked_variable_and_the_tokens_are_nowhere_during_a_job_in_a_vm_and_after_it() {
    let Some(root) = test_root("secrets") else {
        return;
    };
    let settings = Settings {
        programs: "bin",
        ..Settings::default()
    };
    let fleet = Fleet::with(&root, &settings);
    let job = json!([{
        "name": "job",
        "image": "busybox",
        "variables": { "DEPLOY": { "value": VALUE, "masked": true } },
        "script": [
            "echo \"value $DEPLOY\"",
            "printf '%s' \"$DEPLOY\" > of-the-guest",
            "test \"$(wc -c < of-the-guest)\" = 23",
            "test -s .git/config && ! grep -r gl[c]bt- .git",
            "echo listening",
            "sleep 4",
        ],
        "after_script": ["echo \"after $DEPLOY\""],
        "artifacts": { "paths": ["file"] },
    }]);
    let (pipeline, jobs) = fleet.lab.trigger(&job);
    eventually("the script runs", || {
        let mut outputs = fleet.outputs().into_iter();
        outputs
            .any(|output| output.contains("\u{20}listening") || output.contains("\nlistening"))
            .then_some(())
    });
    let (_, directory) = fleet.job_processes().remove(0);
    let runner = fs::read_to_string(fleet.path("runner-token")).unwrap();
    let wanted = [
        Wanted::new("the masked variable", VALUE),
        Wanted::new("the job's token", &job_token(&directory.join("start.json"))),
        Wanted::new("the runner's token", runner.trim()),
    ];

    let mut found = Vec::new();
    let mut read = 0;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        read = search_processes(&wanted, &mut found).max(read);
    }
    assert!(!fleet.job_processes().is_empty(), "the job has ended");
    assert!(read >= 5, "environments of {read} processes were read");
    let guest = processes_of(&directory);
    let has_vm = guest.iter().any(|(_, line)| line.contains("qemu"));
    assert!(has_vm, "no machine among {guest:?}");
    for (pid, line) in guest {
        let environ = fs::read(format!("/proc/{pid}/environ"));
        assert!(environ.is_ok(), "{line}: {environ:?}");
    }

    let ended = eventually("the pipeline ends", || {
        let job = fleet.lab.jobs(pipeline).remove(0);
        (!job["finished_ms"].is_null()).then_some(job)
    });
    let trace = fleet.lab.trace(jobs[0]);
    let text = String::from_utf8_lossy(&trace);
    assert_eq!(ended["status"], "success", "{text}");
    assert!(text.contains("value [MASKED]"), "{text}");
    assert!(text.contains("after [MASKED]"), "{text}");
    for one in &wanted {
        assert_eq!(one.in_bytes(&trace), None, "{text}");
    }
    fleet.assert_nothing_is_left();
    let mut bytes = 0;
    for place in [
        "hub",
        "daemon",
        "node/node",
        "hub.log",
        "daemon.log",
        "node.log",
    ] {
        let looked = search(&fleet.path(place), &wanted, &mut found);
        assert!(looked > 0, "nothing was in {place}");
        bytes += looked;
    }
    let caches = fs::read_dir(fleet.path("node")).unwrap();
    for entry in caches.map(Result::unwrap) {
        if entry.file_name() != "node" {
            bytes += search(&entry.path(), &wanted, &mut found);
        }
    }
    println!("{read} environments and {bytes} bytes of state and logs hold none of them");
    assert_eq!(found, Vec::<String>::new());
}
