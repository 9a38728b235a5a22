//! Throughput of a trace, as ratios to copying the same bytes: `cargo run --release -p vk-trace
//! --example throughput [ROW]`. Each row is the best of several rounds over 16 MiB, in processor time of
//! the one thread, so that a busy machine disturbs little.
//!
//! With `--bench` a line for each row of `make bench`: its name, what it is of (`lines`, `pathological`,
//! `random`, `copy`) and the milliseconds that a GB takes: of bytes in for `lines`, else
//! of bytes in or out, whichever are more.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a bench measures time and prints; the crate it measures does neither"
)]

use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use vk_trace::{Kind, Origin, ReadTime, Secrets, Settings, Trace};

const TOTAL: usize = 16 << 20;
const READ: usize = 64 << 10;
const ROUNDS: usize = 9;
const RANDOM: &str = "overlaps in random letters";

fn cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

fn secrets() -> Secrets {
    let mut secrets = Secrets::new();
    let mut random = Random(7);
    for n in 0..20 {
        let text: String = (0..12 + n)
            .map(|_| random.of(b"abcdefghijklmnopqrstuvwxyz0123456789"))
            .collect();
        secrets.masked_variable(&text);
    }
    secrets
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn of(&mut self, bytes: &[u8]) -> char {
        let at = usize::try_from(self.next()).unwrap() % bytes.len();
        bytes.get(at).copied().unwrap_or(b' ').into()
    }
}

/// Lines as compilers and package managers print them, `width` bytes each with the line break.
fn lines(width: usize) -> Vec<u8> {
    const WORDS: [&str; 24] = [
        "Compiling",
        "serde_json",
        "v1.0.133",
        "warning:",
        "unused",
        "global",
        "[INFO]",
        "Downloaded",
        "https://repo.example.com/maven2/org/glassfish",
        "(12.4",
        "MB/s)",
        "src/main.rs:120:17",
        "ok",
        "single",
        "test",
        "result",
        "PASS",
        "+",
        "-->",
        "in",
        "0.03s",
        "\x1b[32m",
        "gluon",
        "the",
    ];
    let (mut random, mut text) = (Random(1), String::new());
    while text.len() < 1 << 20 {
        let mut line = String::new();
        while line.len() < width {
            let at = usize::try_from(random.next()).unwrap() % WORDS.len();
            line.push_str(WORDS.get(at).copied().unwrap_or_default());
            line.push(' ');
        }
        line.truncate(width - 1);
        text.push_str(&line);
        text.push('\n');
    }
    text.into_bytes()
}

fn repeated(piece: &str) -> Vec<u8> {
    piece.repeat((1 << 20) / piece.len()).into_bytes()
}

/// The time of writing `TOTAL` bytes of `text` in reads of `read` bytes, and the bytes that came.
fn trace(text: &[u8], read: usize, secrets: &Secrets, timestamps: bool) -> (Duration, usize) {
    let settings = Settings {
        timestamps,
        limit_bytes: u64::MAX,
        ..Settings::default()
    };
    let (mut best, mut len) = (Duration::MAX, 0);
    for _ in 0..ROUNDS {
        let mut trace = Trace::new(&settings, secrets.clone()).unwrap();
        let (mut out, mut written, mut time) = (Vec::with_capacity(8 << 20), 0, 0);
        len = 0;
        let begin = cpu_time();
        while written < TOTAL {
            for piece in text.chunks(read) {
                time += 1;
                let at = ReadTime::from_unix(1_767_323_045, time % 1_000_000);
                trace
                    .write(Origin::Guest, Kind::Stdout, at, piece, &mut out)
                    .unwrap();
                if out.len() > 4 << 20 {
                    len += black_box(&out).len();
                    out.clear();
                }
            }
            written += text.len();
        }
        best = best
            .min((cpu_time() - begin) * 1024 / u32::try_from(written / (TOTAL / 1024)).unwrap());
        len += out.len();
    }
    (best, len)
}

fn copy(text: &[u8]) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let (mut out, mut written) = (Vec::with_capacity(8 << 20), 0);
        let begin = cpu_time();
        while written < TOTAL {
            for piece in text.chunks(READ) {
                out.extend_from_slice(black_box(piece));
                if out.len() > 4 << 20 {
                    black_box(&out);
                    out.clear();
                }
            }
            written += text.len();
        }
        best = best
            .min((cpu_time() - begin) * 1024 / u32::try_from(written / (TOTAL / 1024)).unwrap());
    }
    best
}

/// What a row is of, for `--bench`.
#[derive(Clone, Copy)]
enum Of {
    /// Lines as jobs write them.
    Lines,
    /// What a hostile job writes.
    Pathological,
    /// Overlapping secrets at random, which is slower than all else.
    Random,
    /// Of this table alone.
    Table,
}

fn wanted() -> Option<String> {
    std::env::args().nth(1)
}

fn is_bench() -> bool {
    wanted().is_some_and(|wanted| wanted == "--bench")
}

fn row(of: Of, name: &str, text: &[u8], read: usize, secrets: &Secrets, floor: Duration) {
    let of = match of {
        Of::Lines => "lines",
        Of::Pathological => "pathological",
        Of::Random => "random",
        Of::Table => "table",
    };
    if is_bench() {
        if of != "table" {
            let (took, len) = trace(text, read, secrets, true);
            let out = len * (TOTAL / 1024) / (TOTAL.max(text.len()) / 1024);
            let bytes = if of == "lines" { TOTAL } else { TOTAL.max(out) };
            let millis = took.as_secs_f64() * 1e12 / bytes as f64;
            println!("{name}\t{of}\t{millis:.0}");
        }
        return;
    }
    // An argument picks the rows whose name has it.
    if wanted().is_some_and(|wanted| !name.contains(&wanted)) {
        return;
    }
    for stamps in [true, false] {
        let (took, len) = trace(text, read, secrets, stamps);
        let rate = |bytes: usize| bytes as f64 / took.as_secs_f64() / 1e9;
        println!(
            "{name:<44} {:<9} {:6.2} GB/s in {:6.2} GB/s out {:7.1} x memcpy",
            if stamps { "stamped" } else { "plain" },
            rate(TOTAL),
            rate(len * (TOTAL / 1024) / (TOTAL.max(text.len()) / 1024)),
            took.as_secs_f64() / floor.as_secs_f64(),
        );
    }
}

fn main() {
    let (secrets, usual) = (secrets(), lines(120));
    let floor = copy(&usual);
    let rate = TOTAL as f64 / floor.as_secs_f64() / 1e9;
    if is_bench() {
        println!("copying\tcopy\t{:.0}", 1e3 / rate);
    } else {
        println!("memcpy: {rate:.2} GB/s");
    }
    row(
        Of::Lines,
        "120-byte lines, reads of 64 KiB",
        &usual,
        READ,
        &secrets,
        floor,
    );
    row(
        Of::Lines,
        "20-byte lines, reads of 64 KiB",
        &lines(20),
        READ,
        &secrets,
        floor,
    );
    row(
        Of::Table,
        "120-byte lines, a read each",
        &usual,
        120,
        &secrets,
        floor,
    );
    row(
        Of::Table,
        "20-byte lines, a read each",
        &lines(20),
        20,
        &secrets,
        floor,
    );
    row(
        Of::Table,
        "120-byte lines, no secrets",
        &usual,
        READ,
        &Secrets::new(),
        floor,
    );

    if !is_bench() {
        println!("pathological:");
    }
    let phrases = |list: &[&str]| {
        let mut secrets = self::secrets();
        list.iter()
            .for_each(|phrase| secrets.masked_variable(phrase));
        secrets
    };
    let near = phrases(&[
        "aaaaaaaaaaaaaaaaaaaaaaab",
        "abababababababac",
        "secretsecret",
    ]);
    for (name, piece, secrets) in [
        ("near misses: a…", "aaaaaaaaaaaaaaaa", &near),
        ("near misses: abab…", "abababab", &near),
        ("near misses: spread", "aaaaaaa abababa secretsecre ", &near),
        ("secrets only", "secretsecret", &near),
        (
            "overlaps",
            "aaaaaaaaaaaaaaaa",
            &phrases(&["aaaa", "aaa", "aaaaaaaab"]),
        ),
        (
            "overlaps of one secret with itself",
            "abaababaab",
            &phrases(&["abaab", "abaababaabaab", "ab"]),
        ),
        (
            RANDOM,
            "ab",
            &phrases(&["abaab", "aab", "abba", "bbbab", "ba"]),
        ),
        (
            "secrets in each other",
            "aaaaaaaa",
            &phrases(&["a", "aa", "aaaa", "aaaaaaaaaaaaaaaa"]),
        ),
        ("escape sequences", "\x1b[0K\x1b[32;1m", &secrets),
        (
            "sections",
            "section_start:1767323045:step\r\x1b[0K",
            &secrets,
        ),
        (
            "a line without end",
            "the end is not near enough ",
            &secrets,
        ),
        (
            "a common first word",
            "http://example.com/path/file ",
            &phrases(&["http://example.com/q"]),
        ),
        ("question marks", "????????", &secrets),
        ("parameters", "&a=b&c=d&private=e&x-amz=f", &secrets),
        (
            "secret parameters",
            "?private_token=abc&rss_token=x ",
            &secrets,
        ),
        ("prefixes", "glpat-glpat- glrt- ", &secrets),
        ("tokens", "glpat-abcdefgh12 ", &secrets),
        ("carriage returns", "\r\r\r\r\r\r\r\r", &secrets),
        ("progress", "10% \r", &secrets),
        ("line breaks", "\n\n\n\n\n\n\n\n", &secrets),
        ("invalid bytes", "\0", &secrets),
        ("random bytes", "\0", &secrets),
        ("Cyrillic", "Проверка связи и журнала.\n", &secrets),
        ("box drawing", "├──└──│───\n", &secrets),
    ] {
        let mut text = repeated(piece);
        match name {
            "invalid bytes" => text.fill(0xff),
            RANDOM => {
                let mut random = Random(5);
                text.iter_mut()
                    .for_each(|byte| *byte = b'a' + random.next().to_le_bytes()[0] % 2);
            }
            "random bytes" => {
                let mut random = Random(3);
                text.iter_mut()
                    .for_each(|byte| *byte = random.next().to_le_bytes()[0]);
            }
            _ => {}
        }
        let of = if name == RANDOM {
            Of::Random
        } else {
            Of::Pathological
        };
        row(of, name, &text, READ, secrets, floor);
    }
}
