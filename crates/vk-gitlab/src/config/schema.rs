//! The keys of the configuration, by table, and what is said of one that is none.

/// A table's keys, each with the reason of its range where it needs one.
pub(super) struct Keys {
    /// The table, as a configuration has it; empty for the file itself.
    table: &'static str,
    keys: &'static [(&'static str, &'static str)],
}

pub(super) static ROOT: Keys = Keys {
    table: "",
    keys: &[
        ("concurrent", ": 0 would take no job at all"),
        ("check_interval", ": 0 would ask without a pause"),
        ("shutdown_timeout", ""),
        ("place_within_secs", ""),
        ("state_dir", ""),
        ("system_id_file", ""),
        ("mounted_secrets", ""),
        ("gitlab", ""),
        ("metrics", ""),
        ("runners", ""),
    ],
};

pub(super) static GITLAB: Keys = Keys {
    table: "[gitlab]",
    keys: &[("url", "")],
};

pub(super) static METRICS: Keys = Keys {
    table: "[metrics]",
    keys: &[("listen", ""), ("project_labels", "")],
};

pub(super) static RUNNER: Keys = Keys {
    table: "[[runners]]",
    keys: &[
        ("name", ""),
        ("token_file", ""),
        ("token", ""),
        ("tls_ca_file", ""),
        ("tls_cert_file", ""),
        ("tls_key_file", ""),
        ("check_interval", ": 0 would ask without a pause"),
        ("strict_check_interval", ""),
        ("pool", ""),
        ("labels", ""),
        ("envelope", ""),
        ("limit", ""),
        ("request_concurrency", ""),
        ("output_limit", ": GitLab drops a job at 100 MiB"),
        ("lease_secs", ": a lease covers a job request of 60 s"),
        ("unhealthy_requests_limit", ""),
        ("unhealthy_interval", ""),
    ],
};

pub(super) static ENVELOPE: Keys = Keys {
    table: "envelope",
    keys: &[("mem", ""), ("cpus", ""), ("disk", "")],
};

/// All of them.
static ALL: [&Keys; 5] = [&ROOT, &GITLAB, &METRICS, &RUNNER, &ENVELOPE];

/// Keys that upstream spells with hyphens (CFG-15).
const HYPHENS: [&str; 3] = ["tls_ca_file", "tls_cert_file", "tls_key_file"];

impl Keys {
    /// Whether the table has this key, in one of its spellings.
    pub(super) fn has(&self, name: &str) -> bool {
        self.keys.iter().any(|(key, _)| same(name, key))
    }

    fn place(&self) -> String {
        match self.table {
            "" => "at the top of the file, before all tables".to_owned(),
            table => format!("in {table}"),
        }
    }
}

/// Whether what stands there is this key.
pub(super) fn same(stands: &str, key: &str) -> bool {
    stands == key || (HYPHENS.contains(&key) && stands.replace('-', "_") == key)
}

/// Why a key's range is what it is, as the end of a sentence.
pub(super) fn why(keys: &Keys, key: &str) -> &'static str {
    let entry = keys.keys.iter().find(|(name, _)| *name == key);
    entry.map_or("", |(_, why)| why)
}

/// What is said of a key that the table does not have: where it belongs, what may have been meant,
/// or what there is.
pub(super) fn unknown(keys: &Keys, name: &str) -> String {
    if let Some(other) = ALL.iter().find(|other| other.has(name)) {
        return format!("there is no such key here: it belongs {}", other.place());
    }
    match nearest(keys, name) {
        Some(meant) => format!("there is no such key: did you mean {meant}?"),
        None => {
            let names: Vec<&str> = keys.keys.iter().map(|(key, _)| *key).collect();
            format!("there is no such key: there are {}", names.join(", "))
        }
    }
}

/// The key that this may have been meant to be: few letters away, or most of them its own.
fn nearest(keys: &Keys, name: &str) -> Option<&'static str> {
    // Comparing takes the product of both lengths.
    if name.len() > 64 {
        return None;
    }
    let plain = name.to_lowercase().replace('-', "_");
    let names = keys.keys.iter().map(|(key, _)| *key);
    let (distance, key) = names
        .map(|key| (strsim::damerau_levenshtein(&plain, key), key))
        .min()?;
    (distance <= 1 + key.len() / 4).then_some(key)
}

/// A size as one writes it.
pub(super) fn size(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let whole = units
        .into_iter()
        .find(|(shift, _)| bytes != 0 && bytes.is_multiple_of(1 << shift));
    match whole {
        Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_none_is_answered_with_what_was_meant() {
        let rows = [
            ("concurent", "did you mean concurrent?"),
            ("Concurrent", "did you mean concurrent?"),
            ("state-dir", "did you mean state_dir?"),
            ("limit", "it belongs in [[runners]]"),
            ("url", "it belongs in [gitlab]"),
            ("executor", "there are concurrent, check_interval"),
            ("gitlba", "did you mean gitlab?"),
        ];
        for (name, said) in rows {
            let told = unknown(&ROOT, name);
            assert!(told.contains(said), "{name}: {told}");
        }
        let above = unknown(&RUNNER, "concurrent");
        assert!(above.ends_with("it belongs at the top of the file, before all tables"));
        assert!(unknown(&RUNNER, &"x".repeat(100_000)).contains("there are name"));
    }

    #[test]
    fn a_size_is_said_in_the_largest_whole_unit() {
        let rows = [
            (1, "1"),
            (1 << 10, "1K"),
            (63 << 20, "63M"),
            (1 << 50, "1024T"),
        ];
        for (bytes, said) in rows {
            assert_eq!(size(bytes), said);
        }
    }
}
