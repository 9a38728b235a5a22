//! Which kernel modules a guest needs, in the order in which they must be loaded.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::BundleError;
use super::lean::lean;

/// Modules without which a guest cannot reach the host, read its disks or join them.
pub(super) const WANTED: [&str; 6] = [
    "virtio_mmio",
    "vmw_vsock_virtio_transport",
    "virtio_blk",
    "erofs",
    "overlay",
    "ext4",
];
/// What a guest with a network needs more; others do not load it.
pub(super) const NETWORK: [&str; 1] = ["virtio_net"];
/// No module is larger than this once unpacked.
const MODULE_MAX: u64 = 64 << 20;
/// No index of modules is larger than this.
const INDEX_MAX: u64 = 16 << 20;

/// The index that `depmod` writes: a module's file and those it needs.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Module name (underscores) → its file and the files it needs, relative to the directory.
    modules: BTreeMap<String, (String, Vec<String>)>,
    built_in: BTreeSet<String>,
}

/// One module, ready to be loaded.
#[derive(Debug)]
pub(super) struct Module {
    /// Its name, with underscores.
    pub(super) name: String,
    /// The module itself, unpacked and made lean.
    pub(super) data: Vec<u8>,
}

impl Index {
    /// Reads `modules.dep` and `modules.builtin` of a directory such as `/lib/modules/<release>`.
    pub(super) fn read(directory: &Path) -> Result<Self, BundleError> {
        let dep = read_text(&directory.join("modules.dep"))?;
        let built_in = read_text(&directory.join("modules.builtin"))?;
        Ok(Self::parse(&dep, &built_in))
    }

    fn parse(dep: &str, built_in: &str) -> Self {
        let modules = dep.lines().filter_map(|line| {
            let (file, needs) = line.split_once(':')?;
            let needs = needs.split_whitespace().map(str::to_owned).collect();
            Some((name_of(file), (file.to_owned(), needs)))
        });
        Self {
            modules: modules.collect(),
            built_in: built_in.lines().map(name_of).collect(),
        }
    }

    /// Files of `wanted` and all they need, each after what it needs; built-in ones left out.
    pub(super) fn in_load_order(&self, wanted: &[&str]) -> Result<Vec<String>, BundleError> {
        let mut order = Vec::new();
        let mut seen = BTreeSet::new();
        for name in wanted {
            if !self.built_in.contains(*name) {
                self.visit(name, &mut seen, &mut order)?;
            }
        }
        Ok(order)
    }

    fn visit(
        &self,
        name: &str,
        seen: &mut BTreeSet<String>,
        order: &mut Vec<String>,
    ) -> Result<(), BundleError> {
        if !seen.insert(name.to_owned()) {
            return Ok(());
        }
        let (file, needs) = self
            .modules
            .get(name)
            .ok_or_else(|| BundleError::NoModule(name.to_owned()))?;
        for need in needs {
            self.visit(&name_of(need), seen, order)?;
        }
        order.push(file.clone());
        Ok(())
    }
}

/// Reads one module's file below `directory`, unpacking it by its ending.
pub(super) fn load(directory: &Path, file: &str) -> Result<Module, BundleError> {
    let path = directory.join(file);
    let packed = fs::read(&path).map_err(|e| BundleError::Read(path.clone(), e))?;
    let data = match file.rsplit('.').next() {
        Some("ko") => Ok(packed),
        Some("gz") => limited(flate2::read::GzDecoder::new(&packed[..])),
        Some("zst") => zstd::stream::read::Decoder::new(&packed[..]).and_then(limited),
        Some("xz") => unpack_xz(&packed),
        _ => Err(std::io::Error::other(
            "not one of .ko, .ko.gz, .ko.xz and .ko.zst",
        )),
    };
    let data = data.map_err(|e| BundleError::Read(path, e))?;
    Ok(Module {
        name: name_of(file),
        data: lean(data),
    })
}

fn limited(reader: impl Read) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let read = reader.take(MODULE_MAX).read_to_end(&mut out)?;
    if u64::try_from(read).is_ok_and(|read| read < MODULE_MAX) {
        Ok(out)
    } else {
        Err(std::io::Error::other("larger than any module"))
    }
}

fn unpack_xz(mut packed: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    lzma_rs::xz_decompress(&mut packed, &mut out)
        .map_err(|e| std::io::Error::other(format!("not an xz file: {e:?}")))?;
    Ok(out)
}

/// `kernel/fs/erofs/erofs.ko.xz` → `erofs`; modules are named with underscores.
fn name_of(file: &str) -> String {
    let base = file.rsplit('/').next().unwrap_or(file);
    base.split('.').next().unwrap_or(base).replace('-', "_")
}

fn read_text(path: &PathBuf) -> Result<String, BundleError> {
    let mut text = String::new();
    fs::File::open(path)
        .and_then(|file| file.take(INDEX_MAX).read_to_string(&mut text))
        .map_err(|e| BundleError::Read(path.clone(), e))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEP: &str = "\
kernel/net/vmw_vsock/transport.ko.xz: kernel/net/vmw_vsock/transport-common.ko.xz kernel/net/vmw_vsock/vsock.ko.xz kernel/drivers/virtio/virtio.ko.xz kernel/drivers/virtio/virtio_ring.ko.xz
kernel/net/vmw_vsock/transport-common.ko.xz: kernel/net/vmw_vsock/vsock.ko.xz
kernel/net/vmw_vsock/vsock.ko.xz:
kernel/drivers/virtio/virtio.ko.xz: kernel/drivers/virtio/virtio_ring.ko.xz
kernel/drivers/virtio/virtio_ring.ko.xz:
kernel/fs/a.ko: kernel/fs/b.ko
kernel/fs/b.ko: kernel/fs/a.ko
";

    #[test]
    fn every_module_comes_after_those_it_needs_and_once() {
        let index = Index::parse(DEP, "kernel/fs/ext4/ext4.ko\n");
        let order = index
            .in_load_order(&["virtio", "transport", "ext4"])
            .unwrap();
        let names: Vec<_> = order.iter().map(|file| name_of(file)).collect();
        assert_eq!(
            names,
            [
                "virtio_ring",
                "virtio",
                "vsock",
                "transport_common",
                "transport"
            ]
        );
    }

    #[test]
    fn a_module_that_is_nowhere_is_named() {
        let index = Index::parse(DEP, "");
        let error = index.in_load_order(&["overlay"]).unwrap_err();
        assert!(error.to_string().contains("overlay"), "{error}");
    }

    #[test]
    fn modules_that_need_each_other_do_not_loop() {
        assert_eq!(
            Index::parse(DEP, "").in_load_order(&["a"]).unwrap().len(),
            2
        );
    }

    #[test]
    fn a_compressed_module_is_unpacked_by_its_ending() {
        let directory = tempfile::tempdir().unwrap();
        let module = b"\x7fELF a module".to_vec();
        let mut xz = Vec::new();
        lzma_rs::xz_compress(&mut &module[..], &mut xz).unwrap();
        let zst = zstd::encode_all(&module[..], 1).unwrap();
        for (file, packed) in [("m.ko", module.clone()), ("m.ko.xz", xz), ("m.ko.zst", zst)] {
            fs::write(directory.path().join(file), packed).unwrap();
            let loaded = load(directory.path(), file).unwrap();
            assert_eq!(
                (loaded.name.as_str(), &loaded.data),
                ("m", &module),
                "{file}"
            );
        }
        fs::write(directory.path().join("m.ko.lz"), b"?").unwrap();
        assert!(load(directory.path(), "m.ko.lz").is_err());
    }
}
