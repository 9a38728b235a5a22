//! What the host's git sees of the host.

use vk_hub_proto::job::ObjectFormat;
use vk_vm::confine::Place;

use super::*;
use crate::git::host::Protocols;
use crate::git::limits::Limits;
use crate::git::walls::try_git;

fn required(root: &Path) -> Confinement {
    Confinement {
        helper: root.join("bin/vk"),
        walls: Walls::Required,
    }
}

fn test_root() -> Option<PathBuf> {
    let root = std::env::var_os("VK_TEST_ROOT").map(PathBuf::from);
    if root.is_none() {
        println!("walls around git need the built programs: VK_TEST_ROOT is not set");
    }
    root
}

/// What of `paths` a shell sees that git starts, and what of that it can write a file to.
async fn seen(git: &HostGit, paths: &[&Path]) -> Vec<String> {
    let list: Vec<_> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let look = format!(
        "!for path in {}; do \
             [ -e $path ] && echo sees $path; \
             [ -d $path ] && {{ echo x >$path/new; }} 2>/dev/null && echo writes $path; \
             [ -f $path ] && {{ true >>$path; }} 2>/dev/null && echo writes $path; \
         done; :",
        list.join(" ")
    );
    let settings = [("alias.look".to_owned(), look)];
    let (what, args) = ("look", ["look".into()]);
    let said = git.run(what, Protocols::File, &settings, &args);
    said.await.unwrap().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_git_sees_its_home_and_what_it_is_for_and_nothing_else_of_the_host() {
    if test_root().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let git = behind(HostGit::new(path("home")).unwrap()).await;
    let open = async |name: &str| {
        let mirrors = path("mirrors");
        let opened = Mirror::open(&mirrors, git.clone(), name, ObjectFormat::Sha1);
        opened.await.unwrap()
    };
    let (own, _other) = (open("own").await, open("other").await);
    let (own_dir, other_dir) = (path("mirrors/own.git"), path("mirrors/other.git"));
    assert!(own_dir.is_dir() && other_dir.is_dir());
    let token = Secret::from("the-token");
    let private = path("private");
    let credential = Credential::new(private.clone(), "http://h/p.git", &token, None).unwrap();
    let host = [
        "/etc/passwd",
        "/etc/ssl",
        "/root",
        "/proc/self",
        "/sys",
        "/dev/kvm",
    ];
    let mut paths: Vec<_> = host.iter().map(Path::new).collect();
    // On the way to the test's own directory there are names.
    paths.retain(|path| !dir.path().starts_with(path));
    let home = path("home");
    paths.extend([&*home, &own_dir, &other_dir, &private]);
    let says = |what: &str, path: &Path| format!("{what} {}", path.display());
    let (home_seen, home_written) = (says("sees", &home), says("writes", &home));

    let told = seen(&git, &paths).await;
    assert_eq!(told, [&*home_seen, &home_written]);
    let told = seen(&own.read_by(&git), &paths).await;
    assert_eq!(told, [&*home_seen, &home_written, &says("sees", &own_dir)]);
    let told = seen(&git.seeing(&[Place::write(&own_dir)]), &paths).await;
    let (sees, writes) = (says("sees", &own_dir), says("writes", &own_dir));
    assert_eq!(told, [&*home_seen, &home_written, &sees, &writes]);
    // The next job's git would follow its settings.
    let config = own_dir.join("config");
    let told = seen(own.git(), &[&own_dir, &config]).await;
    assert_eq!(told, [&*sees, &writes, &says("sees", &config)]);
    let told = seen(&git.seeing(&credential.way().places), &paths).await;
    assert_eq!(told, [&*home_seen, &home_written, &says("sees", &private)]);
}

#[tokio::test]
async fn a_git_has_the_hosts_network_on_the_way_to_a_server_alone() {
    let Some(root) = test_root() else { return };
    let dir = tempfile::tempdir().unwrap();
    let walls = GitWalls::new(&required(&root)).await.unwrap().unwrap();
    let limits = Limits::of(&SourceBounds::default());
    for (protocols, network) in [(Protocols::File, false), (Protocols::Http, true)] {
        let command = walls.command(&dir.path().join("home"), &[], protocols, limits);
        let command = command.unwrap();
        let plan = command.as_std().get_args().nth(3).unwrap();
        let plan: vk_vm::confine::Walled = serde_json::from_str(plan.to_str().unwrap()).unwrap();
        assert_eq!(plan.network, network);
        let hosts = plan.places.contains(&Place::read("/etc/hosts"));
        assert_eq!(hosts, network && Path::new("/etc/hosts").exists());
    }
}

#[tokio::test]
async fn a_git_without_walls_is_not_run_unless_the_operator_says_so() {
    let Some(root) = test_root() else { return };
    let dir = tempfile::tempdir().unwrap();
    let version = try_git(&required(&root), dir.path()).await.unwrap();
    assert!(version.unwrap().starts_with("git version "));
    let off = Confinement {
        walls: Walls::Off,
        ..required(&root)
    };
    assert_eq!(try_git(&off, dir.path()).await.unwrap(), None);
    let walls = GitWalls::new(&required(&root)).await.unwrap();
    let git = HostGit::new(dir.path().join("home")).unwrap().behind(walls);
    // A path that goes up is shown to nobody.
    let git = git.seeing(&[Place::write(dir.path().join("home/../home"))]);
    let (what, args) = ("tell its version", ["--version".into()]);
    let error = git.run(what, Protocols::File, &[], &args).await;
    let error = error.unwrap_err();
    assert!(matches!(error, GitError::Walls(_)), "{error}");
    assert!(error.to_string().contains("vk check"), "{error}");
}
