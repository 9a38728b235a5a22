use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::cpio::CpioWriter;
use super::manifest::{FileIdentity, INITRAMFS, KERNEL, KernelForm, MANIFEST, Manifest};
use super::modules::{self, Index, Module};
use super::{Bundle, BundleError, bzimage, layout};
use crate::elf;

/// What a bundle is packed from.
#[derive(Debug, Clone)]
pub struct Pack {
    /// The kernel's boot image, such as `/boot/vmlinuz-<release>`.
    pub kernel: PathBuf,
    /// The kernel's modules with their indices, such as `/lib/modules/<release>`.
    pub modules: PathBuf,
    /// The agent: a static program.
    pub agent: PathBuf,
    /// The directory to make; one that is there is replaced, whole or not at all.
    pub out: PathBuf,
}

/// Packs a boot bundle and opens it.
///
/// # Errors
/// Any [`BundleError`]; the bundle that was in `out` before is then still there.
pub fn pack(from: &Pack) -> Result<Bundle, BundleError> {
    let image = read(&from.kernel)?;
    let boot = bzimage::read(&image)?;
    let (form, kernel) = match boot.elf {
        Ok(elf) => (KernelForm::PvhElf, elf),
        Err(why) => {
            tracing::info!(%why, "the kernel stays packed; guests unpack it at each boot");
            (KernelForm::BzImage, image)
        }
    };
    let agent = read_agent(&from.agent)?;
    let index = Index::read(&from.modules)?;
    let always = index.in_load_order(&modules::WANTED)?.len();
    let modules = index
        .in_load_order(&[&modules::WANTED[..], &modules::NETWORK].concat())?
        .iter()
        .map(|file| modules::load(&from.modules, file))
        .collect::<Result<Vec<_>, _>>()?;
    let initramfs = initramfs(&agent, modules.split_at(always))
        .map_err(|e| BundleError::Write(from.out.join(INITRAMFS), e))?;
    let identities = [&kernel, &initramfs, &agent].map(|data| FileIdentity::of(data));
    let names = modules.into_iter().map(|module| module.name).collect();
    let manifest = Manifest::new(boot.release, form, identities, names);
    write(
        &from.out,
        &[(KERNEL, &kernel), (INITRAMFS, &initramfs)],
        &manifest,
    )?;
    Bundle::open(&from.out)
}

fn read(path: &Path) -> Result<Vec<u8>, BundleError> {
    fs::read(path).map_err(|e| BundleError::Read(path.to_owned(), e))
}

fn read_agent(path: &Path) -> Result<Vec<u8>, BundleError> {
    let agent = read(path)?;
    let refused = |why| BundleError::NotAnAgent {
        path: path.to_owned(),
        why,
    };
    if !elf::is_elf(&agent) {
        return Err(refused("it is not a 64-bit program"));
    }
    if elf::interpreter(&agent).is_some() {
        return Err(refused(
            "it is linked dynamically, and a guest's initramfs has no libraries",
        ));
    }
    Ok(agent)
}

/// The agent, the modules that every guest loads, and those that one with a network loads too.
fn initramfs(agent: &[u8], modules: (&[Module], &[Module])) -> io::Result<Vec<u8>> {
    let mut cpio = CpioWriter::new(Vec::new());
    cpio.directory("dev")?;
    cpio.character_device("dev/console", (5, 1))?;
    cpio.file(layout::INIT, 0o755, &elf::without_sections(agent))?;
    cpio.directory(layout::DIRECTORY)?;
    cpio.directory(&format!("{}/{}", layout::DIRECTORY, layout::MODULES))?;
    let (always, network) = modules;
    for (name, modules) in [
        (layout::MODULE_LIST, always),
        (layout::NETWORK_LIST, network),
    ] {
        let mut list = String::new();
        for module in modules {
            let path = format!("{}/{}.ko", layout::MODULES, module.name);
            cpio.file(
                &format!("{}/{path}", layout::DIRECTORY),
                0o444,
                &module.data,
            )?;
            list.push_str(&path);
            list.push('\n');
        }
        cpio.file(name, 0o444, list.as_bytes())?;
    }
    cpio.finish()
}

/// Writes the bundle beside `out` and then puts it in its place.
fn write(out: &Path, files: &[(&str, &[u8])], manifest: &Manifest) -> Result<(), BundleError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |e: io::Error| BundleError::Write(path, e)
    };
    let parent = match out.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(parent).map_err(failed(parent))?;
    let beside = sibling(out, "new");
    let _ = fs::remove_dir_all(&beside);
    fs::create_dir(&beside).map_err(failed(&beside))?;
    let manifest = serde_json::to_vec_pretty(manifest)
        .map_err(|e| BundleError::Write(out.join(MANIFEST), e.into()))?;
    for (name, data) in files.iter().chain([&(MANIFEST, &manifest[..])]) {
        let path = beside.join(name);
        fs::write(&path, data).map_err(failed(&path))?;
    }
    let old = sibling(out, "old");
    let _ = fs::remove_dir_all(&old);
    if out.exists() {
        fs::rename(out, &old).map_err(failed(&old))?;
    }
    fs::rename(&beside, out).map_err(failed(out))?;
    let _ = fs::remove_dir_all(&old);
    Ok(())
}

fn sibling(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{ending}"));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::{with_note, with_segment};

    fn inputs(root: &Path, agent: &[u8]) -> Pack {
        let mut image = vec![0; 2 * 512 + 64];
        let kernel = with_note(b"Xen\0", 18);
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
        image[0x248..0x24c].copy_from_slice(&64_u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&u32::try_from(kernel.len()).unwrap().to_le_bytes());
        image[0x300..0x304].copy_from_slice(b"6.1 ");
        image.extend_from_slice(&kernel);
        fs::write(root.join("vmlinuz"), image).unwrap();
        fs::write(root.join("agent"), agent).unwrap();
        let wanted = [&modules::WANTED[..], &modules::NETWORK].concat();
        let built_in: Vec<_> = wanted
            .iter()
            .map(|name| format!("kernel/{name}.ko"))
            .collect();
        let built_in = built_in.join("\n").replace("kernel/erofs.ko\n", "");
        fs::write(root.join("modules.builtin"), built_in).unwrap();
        fs::write(
            root.join("modules.dep"),
            "kernel/erofs.ko: kernel/crc.ko\nkernel/crc.ko:\n",
        )
        .unwrap();
        fs::create_dir_all(root.join("kernel")).unwrap();
        fs::write(root.join("kernel/erofs.ko"), "erofs").unwrap();
        fs::write(root.join("kernel/crc.ko"), "crc").unwrap();
        Pack {
            kernel: root.join("vmlinuz"),
            modules: root.to_owned(),
            agent: root.join("agent"),
            out: root.join("guest"),
        }
    }

    #[test]
    fn a_packed_bundle_opens_and_verifies_and_packs_the_same_again() {
        let root = tempfile::tempdir().unwrap();
        let from = inputs(root.path(), &with_note(b"GNU\0", 1));
        let first = pack(&from).unwrap();
        assert_eq!(first.manifest().kernel_form, KernelForm::PvhElf);
        assert_eq!(first.manifest().kernel_release, "6.1");
        assert_eq!(first.manifest().modules, ["crc", "erofs"]);
        let again = pack(&from).unwrap();
        again.verify().unwrap();
        assert_eq!(first.manifest(), again.manifest());
        assert_eq!(
            fs::read_dir(root.path()).unwrap().count(),
            6,
            "nothing is left beside it"
        );
    }

    #[test]
    fn a_bundle_of_another_release_is_refused_by_its_format() {
        let root = tempfile::tempdir().unwrap();
        let from = inputs(root.path(), &with_note(b"GNU\0", 1));
        pack(&from).unwrap();
        let path = from.out.join("manifest.json");
        let text = fs::read_to_string(&path).unwrap();
        let older = text.replace("\"format\": 3", "\"format\": 2");
        assert_ne!(older, text);
        fs::write(&path, older).unwrap();
        let error = Bundle::open(&from.out).unwrap_err().to_string();
        assert!(error.contains("its format is 2"), "{error}");
        assert!(error.contains("vk guest pack"), "{error}");
    }

    /// An agent that cannot be spoken to lies in a bundle that is refused: before any job is taken.
    #[test]
    fn the_format_is_raised_with_the_agents_lowest_version() {
        let root = tempfile::tempdir().unwrap();
        let bundle = pack(&inputs(root.path(), &with_note(b"GNU\0", 1))).unwrap();
        let both = (bundle.manifest().format, vk_guest_proto::LOWEST_VERSION);
        assert_eq!(both, (3, 3));
    }

    #[test]
    fn a_bundle_that_was_changed_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let bundle = pack(&inputs(root.path(), &with_note(b"GNU\0", 1))).unwrap();
        let mut initramfs = fs::read(bundle.initramfs()).unwrap();
        initramfs[200] ^= 1;
        fs::write(bundle.initramfs(), &initramfs).unwrap();
        assert!(matches!(bundle.verify(), Err(BundleError::Unusable { .. })));
        fs::write(bundle.initramfs(), b"short").unwrap();
        let error = Bundle::open(&root.path().join("guest")).unwrap_err();
        assert!(error.to_string().contains("vk guest pack"), "{error}");
    }

    #[test]
    fn an_agent_that_cannot_be_a_first_process_is_refused() {
        let root = tempfile::tempdir().unwrap();
        for agent in [&b"#!/bin/sh\n"[..], &with_segment(3, b"/lib64/ld.so\0")] {
            let error = pack(&inputs(root.path(), agent)).unwrap_err();
            assert!(matches!(error, BundleError::NotAnAgent { .. }), "{error}");
        }
    }

    #[test]
    fn the_secret_follows_the_bundles_own_archive() {
        let root = tempfile::tempdir().unwrap();
        let bundle = pack(&inputs(root.path(), &with_note(b"GNU\0", 1))).unwrap();
        let secret = vk_guest_proto::Secret::take(&mut [0xa5; 32]);
        let path = root.path().join("initrd");
        super::super::write_initrd(&bundle, &secret, &path).unwrap();
        let base = fs::read(bundle.initramfs()).unwrap();
        let whole = fs::read(&path).unwrap();
        let behind = whole.strip_prefix(&base[..]).unwrap();
        assert!(base.len().is_multiple_of(4) && behind.starts_with(b"070701"));
        assert!(behind.windows(32).any(|window| window == [0xa5; 32]));
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }
}
