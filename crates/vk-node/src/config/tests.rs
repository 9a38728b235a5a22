//! Every key: its default, what it takes, what it refuses and how that is said.

use super::*;

fn parse(text: &str) -> Result<Config, String> {
    let base = Path::new("/etc/vk");
    Config::parse(text, &base.join("config.toml"), Some(base)).map_err(|error| error.to_string())
}

#[test]
fn every_key_has_a_default() {
    let config = parse("").unwrap();
    assert_eq!(config.state_dir, Path::new("/var/lib/vk"));
    assert_eq!(config.vm.sizes, Sizes::default());
    assert_eq!(config.schedule.wait_timeout, Duration::from_secs(600));
    assert!(config.labels.is_empty() && config.schedule.disk_admission);
    assert_eq!(config.vm.network, Network::None);
    assert!(config.schedule.max_concurrency.is_none() && config.schedule.mem_mib.is_none());
}

#[test]
fn keys_are_read_and_paths_are_the_files_own() {
    let config = parse(
        "state_dir = \"state\"\n[node]\nlabels = [\"fast\"]\n[net]\nmode = \"switch\"\n\
         [executor]\nimage = \"debian\"\n[executor.vm]\ncpus = 2\nmem = \"1G\"\nmax_mem = \"2G\"\n\
         bundle = \"/boot/vk\"\n[executor.schedule]\nmem_budget = \"8G\"\ndisk_budget = \"100G\"\n\
         max_concurrency = 3\n",
    )
    .unwrap();
    assert_eq!(config.state_dir, Path::new("/etc/vk/state"));
    assert_eq!(config.vm.bundle.as_deref(), Some(Path::new("/boot/vk")));
    let sizes = Sizes {
        cpus: 2,
        mem_mib: 1024,
        max_cpus: 2,
        max_mem_mib: 2048,
    };
    assert_eq!(config.vm.sizes, sizes);
    assert_eq!(config.vm.network, Network::Switch);
    assert_eq!(config.schedule.mem_mib, Some(8192));
    assert_eq!(config.schedule.disk_bytes, Some(100 << 30));
    assert_eq!(config.schedule.max_concurrency, Some(3));
    assert_eq!(config.image.as_deref(), Some("debian"));
}

#[test]
fn metrics_are_served_where_that_is_asked_for_and_to_this_host_alone() {
    assert_eq!(parse("").unwrap().metrics, None);
    let unix = parse("[metrics]\nlisten = \"unix:/run/vk/metrics\"\n").unwrap();
    assert_eq!(unix.metrics, Some(Listen::Unix("/run/vk/metrics".into())));
    let open = parse("[metrics]\nlisten = \"0.0.0.0:9253\"\n").unwrap_err();
    assert!(
        open.contains(":2: metrics.listen: ") && open.contains("loopback"),
        "{open}"
    );
    assert!(parse("[metrics]\n").unwrap_err().contains("listen"));
}

#[test]
fn what_sources_may_take_is_read_and_makes_sense() {
    assert_eq!(parse("").unwrap().sources, Sources::default());
    let text = "[sources]\nmax_total = \"1G\"\nmax_project = \"100M\"\nmax_git_memory = \"2G\"\n";
    let both = parse(text).unwrap();
    let expected = Sources {
        max_total: Some(1 << 30),
        max_project: Some(100 << 20),
        max_git_memory: Some(2 << 30),
    };
    assert_eq!(both.sources, expected);
    for (text, line, why) in [
        ("[sources]\nmax_total = \"1M\"\n", 2, "at least 16M"),
        ("[sources]\nmax_project = \"15M\"\n", 2, "at least 16M"),
        ("[sources]\nmax_git_memory = \"255M\"\n", 2, "at least 256M"),
        (
            "[sources]\nmax_total = \"1G\"\nmax_project = \"2G\"\n",
            3,
            "more than max_total",
        ),
    ] {
        let said = parse(text).unwrap_err();
        assert!(
            said.contains(&format!(":{line}: ")) && said.contains(why),
            "{said}"
        );
    }
}

#[test]
fn what_images_may_take_is_read_and_makes_sense() {
    assert_eq!(parse("").unwrap().image_store, ImageStore::default());
    let both = parse("[images]\nmax_total = \"100G\"\nmax_image = \"8G\"\n").unwrap();
    let expected = ImageStore {
        max_total: Some(100 << 30),
        max_image: Some(8 << 30),
    };
    assert_eq!(both.image_store, expected);
    for (keys, line, why) in [
        ("max_total = \"1M\"\n", 2, "at least 16M"),
        ("max_image = \"1M\"\n", 2, "16M to 256G"),
        ("max_image = \"300G\"\n", 2, "16M to 256G"),
        (
            "max_total = \"1G\"\nmax_image = \"2G\"\n",
            3,
            "more than max_total",
        ),
    ] {
        let said = parse(&format!("[images]\n{keys}")).unwrap_err();
        assert!(
            said.contains(&format!(":{line}: ")) && said.contains(why),
            "{said}"
        );
    }
}

/// CFG-11
#[test]
fn what_a_host_says_of_itself_is_read() {
    let nothing = parse("").unwrap();
    assert!(!nothing.no_runner && nothing.labels.is_empty());
    assert_eq!(nothing.schedule.max_concurrency, None);
    assert_eq!(nothing.schedule.image_cache_idle, Duration::from_secs(1800));
    let all = parse(
        "[node]\nrunner = \"none\"\nlabels = [\"large-memory\", \"arm\"]\n[executor.schedule]\n\
         max_concurrency = 7\nimage_cache_idle_secs = 60\n",
    )
    .unwrap();
    assert!(all.no_runner);
    let labels = all.labels.iter().map(ToString::to_string);
    assert_eq!(labels.collect::<Vec<_>>(), ["large-memory", "arm"]);
    assert_eq!(all.schedule.max_concurrency, Some(7));
    assert_eq!(all.schedule.image_cache_idle, Duration::from_secs(60));
}

/// CFG-11
#[test]
fn what_cannot_be_is_refused_with_its_line_and_what_to_do() {
    let many = format!("[node]\nlabels = [{}]", "\"a\",".repeat(65));
    for (text, line, says) in [
        ("[node]\n\nrunner = \"shell\"", 3, "set it to \"none\""),
        ("[node]\nlabels = [\"\"]", 2, "labels"),
        ("[node]\nlabels = \"fast\"", 2, "labels"),
        (&many, 2, "leave some out"),
        ("[node]\nlabel = [\"fast\"]", 2, "labels"),
        (
            "[executor]\nimage = \"x\"\n[executor.schedule]\nmax_concurrency = 0",
            4,
            "leave it out for no limit",
        ),
        (
            "[executor.schedule]\nmax_concurrency = -1",
            2,
            "max_concurrency",
        ),
        (
            "[executor.schedule]\nimage_cache_idle_secs = 31536001",
            2,
            "at most 31536000",
        ),
        (
            "executor = { schedule = { image_cache_idle_secs = \"1h\" } }",
            1,
            "image_cache_idle_secs",
        ),
    ] {
        let error = parse(text).unwrap_err();
        let at = [
            format!("/etc/vk/config.toml:{line}: "),
            format!("TOML parse error at line {line},"),
        ];
        let has_line = at.iter().any(|at| error.contains(at));
        assert!(has_line && error.contains(says), "{text}: {error}");
        assert!(error.contains("/etc/vk/config.toml"), "{error}");
    }
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    for (text, says) in [
        ("state = 1", "line 1"),
        ("[executor.vm]\n\nmemory = 3", "line 3"),
        ("[net]\nmode = \"host\"", "net.mode"),
        ("[executor.vm]\nmem = \"0\"", "no size"),
        ("[executor.vm]\nmem = \"64M\"", "128M"),
        ("[executor.vm]\ncpus = 0", "executor.vm.cpus"),
        (
            "[executor.vm]\ncpus = 4\nmax_cpus = 2",
            "executor.vm.max_cpus",
        ),
        (
            "[executor.schedule]\nmax_concurrency = 0",
            "max_concurrency",
        ),
        ("[node]\nlabels = [\"\"]", "line 2"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(
            error.contains("/etc/vk/config.toml") && error.contains(says),
            "{error}"
        );
    }
}

/// CFG-11, CACHE-01
#[test]
fn the_registry_is_where_it_says_and_how() {
    assert_eq!(parse("").unwrap().registry, None);
    assert_eq!(
        parse("[registry]\ninsecure = [\"a:1\"]").unwrap().registry,
        None
    );
    let config = parse(
        "[registry]\nrepo = \"registry.example.com:5000/vk/\"\nca_file = \"ca.pem\"\n\
         username = \"node\"\npassword_file = \"/secret/password\"\nguest_credential = \"job\"\n",
    )
    .unwrap();
    let registry = config.registry.unwrap();
    assert_eq!(registry.repo, "registry.example.com:5000/vk");
    assert_eq!(
        registry.ca_file.as_deref(),
        Some(Path::new("/etc/vk/ca.pem"))
    );
    let login = ("node".to_owned(), PathBuf::from("/secret/password"));
    assert_eq!(registry.login, Some(login));
    assert!(registry.job_token_only);
    let plain = parse("[registry]\nrepo = \"localhost:5000\"\nguest_credential = \"node\"");
    let plain = plain.unwrap().registry.unwrap();
    assert!(!plain.job_token_only && plain.login.is_none());
}

/// CFG-11, REG-18
#[test]
fn a_registry_that_cannot_be_is_refused_with_its_line_and_what_to_do() {
    let repo = "repo = \"registry.example.com/vk\"";
    for (keys, line, says) in [
        (
            "repo = \"https://registry.example.com/vk\"",
            2,
            "without https://",
        ),
        ("repo = \"vk\"", 2, "a host has a dot"),
        ("repo = \"registry/vk\"", 2, "a host has a dot"),
        ("repo = \"registry.example.com/VK\"", 2, "lower case"),
        ("repo = \"\"", 2, "no place"),
        (
            &format!("{repo}\nusername = \"x\""),
            3,
            "set password_file, too",
        ),
        (
            &format!("{repo}\npassword_file = \"x\""),
            3,
            "set username, too",
        ),
        (
            &format!("{repo}\nguest_credential = \"all\""),
            3,
            "\"node\" or \"job\"",
        ),
        ("guest_credential = \"job\"", 1, "has no repo"),
        ("password = \"x\"", 2, "password"),
    ] {
        let error = parse(&format!("[registry]\n{keys}")).unwrap_err();
        let at = [
            format!("/etc/vk/config.toml:{line}: "),
            format!("TOML parse error at line {line},"),
        ];
        let has_line = at.iter().any(|at| error.contains(at));
        assert!(has_line && error.contains(says), "{keys}: {error}");
    }
}

/// REG-04, REG-22
#[test]
fn the_hub_knows_a_registry_by_scheme_host_and_port() {
    for (repo, url) in [
        ("registry.example.com/vk", "https://registry.example.com"),
        (
            "registry.example.com:5000/vk/x",
            "https://registry.example.com:5000",
        ),
        ("plain.example.com:5000", "http://plain.example.com:5000"),
        ("127.0.0.1:5000/vk", "http://127.0.0.1:5000"),
    ] {
        let text = format!("[registry]\nrepo = {repo:?}\ninsecure = [\"plain.example.com:5000\"]");
        let config = parse(&text).unwrap();
        let registry = config.registry.unwrap();
        let found = registry.base_url(&config.insecure_registries);
        assert_eq!(found.as_deref(), Some(url), "{repo}");
    }
}

/// CFG-11, SPEC-39
#[test]
fn which_images_jobs_may_have_is_read() {
    use vk_hub_proto::job::PullPolicy::{Always, IfNotPresent, Never};
    let none = parse("").unwrap().images;
    assert_eq!(none, Images::default());
    assert_eq!(
        (none.pull_policy, none.allowed_pull_policies),
        (vec![Always], vec![Always])
    );
    for (keys, own, allowed) in [
        (
            "pull_policy = \"if-not-present\"",
            vec![IfNotPresent],
            vec![IfNotPresent],
        ),
        (
            "pull_policy = [\"always\", \"always\", \"if-not-present\"]",
            vec![Always, Always, IfNotPresent],
            vec![Always, Always, IfNotPresent],
        ),
        (
            "allowed_pull_policies = [\"never\", \"always\"]",
            vec![Always],
            vec![Never, Always],
        ),
        (
            "pull_policy = [\"never\"]\nallowed_pull_policies = \"never\"",
            vec![Never],
            vec![Never],
        ),
    ] {
        let images = parse(&format!("[executor]\n{keys}")).unwrap().images;
        assert_eq!(images.pull_policy, own, "{keys}");
        assert_eq!(images.allowed_pull_policies, allowed, "{keys}");
    }
    let lists = "[executor]\nallowed_images = [\"debian:*\", \"registry.example.com/**\"]\n\
                 allowed_users = [\"1000\"]";
    let images = parse(lists).unwrap().images;
    assert_eq!(
        images.allowed_images,
        ["debian:*", "registry.example.com/**"]
    );
    assert_eq!(images.allowed_users, ["1000"]);
}

/// CFG-11
#[test]
fn rules_of_images_that_cannot_be_are_refused_with_their_line_and_what_to_do() {
    let long = format!("allowed_images = [\"{}\"]", "a".repeat(1025));
    // They stand for 512 others.
    let braces = format!("allowed_images = ['{}']", "{a,b}".repeat(9));
    let many = format!("allowed_users = [{}]", "\"1\",".repeat(257));
    for (keys, line, says) in [
        (
            "pull_policy = \"sometimes\"",
            3,
            "executor.pull_policy: \"sometimes\" is no policy: each is \"always\",",
        ),
        ("pull_policy = 1", 3, "a text, or a list of texts"),
        ("pull_policy = []", 3, "1 to 10 policies"),
        (
            "image = \"a\"\nallowed_pull_policies = [\"Always\"]",
            4,
            "executor.allowed_pull_policies: \"Always\" is no policy",
        ),
        (
            "allowed_pull_policies = [\"never\"]",
            3,
            "pull_policy (\"always\") is among them, so that no job",
        ),
        ("allowed_images = \"debian\"", 3, "allowed_images"),
        (
            "allowed_images = [\"debian\", \" \"]",
            3,
            "executor.allowed_images: \" \" is none: each is a pattern",
        ),
        (
            "allowed_images = [\"debian:[0-9\"]",
            3,
            "is none: each is a pattern",
        ),
        (
            "allowed_images = [\"{a,b\"]",
            3,
            "is none: each is a pattern",
        ),
        ("allowed_images = ['a\\']", 3, "is none: each is a pattern"),
        ("allowed_images = ['[]']", 3, "is none: each is a pattern"),
        (
            "allowed_images = ['a[b-]']",
            3,
            "is none: each is a pattern",
        ),
        (&braces, 3, "is none: each is a pattern"),
        (&long, 3, "at most 1024 bytes"),
        (
            "allowed_users = [\"\"]",
            3,
            "executor.allowed_users: \"\" is none",
        ),
        (&many, 3, "at most 256: leave some out"),
        ("allowed_user = []", 3, "allowed_users"),
    ] {
        let error = parse(&format!("\n[executor]\n{keys}")).unwrap_err();
        let at = [
            format!("/etc/vk/config.toml:{line}: "),
            format!("TOML parse error at line {line},"),
        ];
        let has_line = at.iter().any(|at| error.contains(at));
        assert!(has_line && error.contains(says), "{keys}: {error}");
    }
}
