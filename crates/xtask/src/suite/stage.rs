//! Lays a built workspace out where an ordinary user can read it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::StageArgs;
use super::build::{Builder, Built, fuzzed, test_features};
use super::index::{self, TestProgram, Wishes};
use super::lock::RootLock;
use crate::workspace::{self, Metadata, Package};

/// Builds, then replaces what lies in the test root.
pub(super) fn stage(args: &StageArgs) -> Result<()> {
    let project = workspace::root()?;
    let metadata = Metadata::read(&project)?;
    let builder = Builder {
        root: &project,
        metadata: &metadata,
        release: args.release,
    };
    make_folder(&args.root)?;
    let _lock = RootLock::take(&args.root)?;
    let root = make_root(&args.root)?;

    stage_programs(&builder, &root)?;
    stage_tools(&project, &root)?;
    stage_guest(&project, &root)?;
    stage_fixtures(&project, &metadata, &root)?;
    let tests = if args.no_tests {
        Vec::new()
    } else {
        let long = match args.long {
            true => fuzzed(&metadata, &args.crates),
            false => Vec::new(),
        };
        builder.tests(&long)?
    };
    stage_tests(&metadata, tests, &root)
}

/// The root with its folders; what an earlier run left in them goes. Folders are open to all users
/// whatever the caller's umask.
fn make_root(root: &Path) -> Result<PathBuf> {
    for name in [
        "bin",
        "bin-process",
        "fixtures",
        "tests",
        "images",
        "logs",
        "work",
    ] {
        let folder = root.join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder)
                .with_context(|| format!("emptying {}", folder.display()))?;
        }
        make_folder(&folder)?;
    }
    open_to_all(root)?;
    root.canonicalize()
        .with_context(|| format!("{}", root.display()))
}

fn make_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    open_to_all(folder)
}

fn open_to_all(folder: &Path) -> Result<()> {
    fs::set_permissions(folder, PermissionsExt::from_mode(0o755))
        .with_context(|| format!("opening {} to all users", folder.display()))
}

fn stage_programs(builder: &Builder<'_>, root: &Path) -> Result<()> {
    let bin = root.join("bin");
    match builder.agent()? {
        Some(agent) => place(&agent, &bin.join("vk-agent"), 0o755)?,
        None => eprintln!("stage: no crate vk-agent yet, so no guest"),
    }
    let crates = builder.program_crates();
    if crates.is_empty() {
        eprintln!("stage: no crate builds a program yet");
        return Ok(());
    }
    for program in builder.programs(&crates, false)? {
        place(&program, &into(&bin, &program), 0o755)?;
    }
    let has_feature = |package: &&Package| !test_features(package).is_empty();
    let (with, without): (Vec<&Package>, Vec<&Package>) = crates.into_iter().partition(has_feature);
    let process = root.join("bin-process");
    for name in without.iter().flat_map(|package| package.programs()) {
        place(&bin.join(name), &process.join(name), 0o755)?;
    }
    if !with.is_empty() {
        for program in builder.programs(&with, true)? {
            place(&program, &into(&process, &program), 0o755)?;
        }
    }
    if bin.join("vk-agent").exists() {
        place(&bin.join("vk-agent"), &process.join("vk-agent"), 0o755)?;
    }
    Ok(())
}

fn into(folder: &Path, file: &Path) -> PathBuf {
    folder.join(file.file_name().unwrap_or_default())
}

/// What the set-up installed into the project's tools folder: programs and images.
fn stage_tools(project: &Path, root: &Path) -> Result<()> {
    let tools = project.join(".tools");
    // VMs of the programs with test features need what VMs are made with, too.
    let folders = [
        ("bin", "bin", 0o755),
        ("bin", "bin-process", 0o755),
        ("images", "images", 0o644),
    ];
    for (from, to, mode) in folders {
        let from = tools.join(from);
        let Ok(entries) = fs::read_dir(&from) else {
            continue;
        };
        for entry in entries {
            let path = entry
                .with_context(|| format!("listing {}", from.display()))?
                .path();
            // The set-up links to a cache: what is staged is the file itself.
            let file = path
                .canonicalize()
                .with_context(|| format!("{}", path.display()))?;
            // What checks the house is no part of a run.
            let for_checks = path.file_name().is_some_and(|name| name == "cargo-deny");
            if file.is_file() && !for_checks {
                place(&file, &into(&root.join(to), &path), mode)?;
            }
        }
    }
    Ok(())
}

/// Packs the boot bundle, where there are a kernel, the agent and the program that packs.
fn stage_guest(project: &Path, root: &Path) -> Result<()> {
    let kernel = project.join(".tools/kernel");
    let (vk, agent) = (root.join("bin/vk"), root.join("bin/vk-agent"));
    for (needed, what) in [
        (&vk, "no program vk yet"),
        (&agent, "no program vk-agent yet"),
        (&kernel.join("vmlinuz"), "no guest kernel: run `make setup`"),
    ] {
        if !needed.exists() {
            eprintln!("stage: {what}, so no boot bundle");
            return Ok(());
        }
    }
    let out = root.join("guest");
    if out.exists() {
        fs::remove_dir_all(&out).with_context(|| format!("emptying {}", out.display()))?;
    }
    let status = Command::new(&vk)
        .args(["guest", "pack", "--kernel"])
        .arg(kernel.join("vmlinuz"))
        .arg("--modules")
        .arg(kernel.join("modules"))
        .arg("--agent")
        .arg(&agent)
        .arg("--out")
        .arg(&out)
        .status()
        .context("starting vk guest pack")?;
    if !status.success() {
        bail!("vk guest pack failed ({status})");
    }
    copy_tree(&out, &out, &|_| true)
}

fn stage_fixtures(project: &Path, metadata: &Metadata, root: &Path) -> Result<()> {
    let fixtures = root.join("fixtures");
    let is_fixture = |path: &Path| path.extension().is_none_or(|extension| extension != "rs");
    for package in metadata.members() {
        copy_tree(
            &package.dir().join("tests"),
            &fixtures.join(&package.name),
            &is_fixture,
        )?;
    }
    for name in ["tests", "examples", "scripts"] {
        copy_tree(&project.join(name), &fixtures.join(name), &|_| true)?;
    }
    Ok(())
}

fn stage_tests(metadata: &Metadata, tests: Vec<Built>, root: &Path) -> Result<()> {
    let mut programs = Vec::new();
    for built in tests {
        let package = metadata
            .packages
            .iter()
            .find(|package| package.id == built.package_id);
        let Some(package) = package else { continue };
        let name = format!("{}--{}--{}", package.name, built.kind, built.target);
        let path = Path::new("tests").join(name);
        place(&built.executable, &root.join(&path), 0o755)?;
        let wishes = Wishes::of(&package.name, &package.metadata)?;
        let (package, kind) = (package.name.clone(), built.kind);
        programs.push(TestProgram {
            package,
            kind,
            target: built.target,
            path,
            wishes,
        });
    }
    programs.sort_by(|a, b| a.path.cmp(&b.path));
    eprintln!(
        "stage: {} test programs in {}",
        programs.len(),
        root.display()
    );
    index::write(root, &programs)
}

/// Puts a file in its place: by a link where the file is ours and on the same file system, else by
/// a copy. A built program is replaced by cargo, never written to, so a link stays what it was.
fn place(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let what = || format!("placing {} as {}", from.display(), to.display());
    if fs::hard_link(from, to).is_err() {
        fs::copy(from, to).with_context(what)?;
    }
    fs::set_permissions(to, PermissionsExt::from_mode(mode)).with_context(what)
}

/// Copies the files of a tree that are wanted, readable by all; a tree that is not there is empty.
/// Onto itself, it only makes the tree readable.
fn copy_tree(from: &Path, to: &Path, wanted: &dyn Fn(&Path) -> bool) -> Result<()> {
    if !from.is_dir() {
        return Ok(());
    }
    make_folder(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("listing {}", from.display()))? {
        let entry = entry.with_context(|| format!("listing {}", from.display()))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().context("reading a file's type")?;
        if kind.is_dir() {
            copy_tree(&source, &target, wanted)?;
        } else if kind.is_file() && wanted(&source) {
            let what = || format!("copying {} to {}", source.display(), target.display());
            if source != target {
                fs::copy(&source, &target).with_context(what)?;
            }
            let executable = entry.metadata().with_context(what)?.permissions().mode() & 0o111 != 0;
            let mode = if executable { 0o755 } else { 0o644 };
            fs::set_permissions(&target, PermissionsExt::from_mode(mode)).with_context(what)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn fixtures_are_copied_without_sources_and_readable_by_all() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("tests");
        fs::create_dir_all(from.join("golden")).unwrap();
        fs::write(from.join("golden/a.json"), "{}").unwrap();
        fs::write(from.join("it.rs"), "").unwrap();
        fs::write(from.join("run.sh"), "").unwrap();
        fs::set_permissions(from.join("golden"), PermissionsExt::from_mode(0o700)).unwrap();
        fs::set_permissions(from.join("golden/a.json"), PermissionsExt::from_mode(0o600)).unwrap();
        fs::set_permissions(from.join("run.sh"), PermissionsExt::from_mode(0o700)).unwrap();
        let to = dir.path().join("out/a");
        copy_tree(&from, &to, &|path| {
            path.extension().is_none_or(|e| e != "rs")
        })
        .unwrap();
        assert_eq!(mode(&to.join("golden")), 0o755);
        assert_eq!(mode(&to.join("golden/a.json")), 0o644);
        assert_eq!(mode(&to.join("run.sh")), 0o755);
        assert!(!to.join("it.rs").exists());
    }

    #[test]
    fn a_root_is_emptied_before_it_is_filled() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        make_root(&root).unwrap();
        fs::write(root.join("bin/old"), "").unwrap();
        fs::write(root.join("guest"), "kept").unwrap();
        make_root(&root).unwrap();
        assert!(!root.join("bin/old").exists());
        assert!(root.join("guest").exists(), "the rest stays");
        assert_eq!(mode(&root.join("work")), 0o755);
    }
}
