//! A Linux boot image taken apart: its release, and the kernel proper when it can be unpacked.
//!
//! A kernel unpacked on the host once and entered through PVH saves each guest the unpacking.
//! Field offsets are those of the kernel's x86 boot protocol.

use std::io::Read;

use super::{BundleError, lz4_legacy};
use crate::elf::{has_pvh_entry, is_elf, u16_at, u32_at};

/// No kernel is larger than this once unpacked.
const KERNEL_MAX: usize = 512 << 20;

/// What a boot image holds.
#[derive(Debug)]
pub(super) struct BootImage {
    /// The release, as `uname -r` will say it.
    pub(super) release: String,
    /// The kernel as an ELF file with a PVH entry, or why there is none.
    pub(super) elf: Result<Vec<u8>, BundleError>,
}

/// Takes `image` apart.
pub(super) fn read(image: &[u8]) -> Result<BootImage, BundleError> {
    if image.get(0x202..0x206) != Some(b"HdrS") {
        return Err(BundleError::NotABootImage("it has no boot header"));
    }
    let release = release(image).ok_or(BundleError::NotABootImage("it names no release"))?;
    let elf = payload(image)
        .ok_or(BundleError::NotABootImage(
            "its header points outside of it",
        ))
        .and_then(unpack)
        .and_then(|elf| {
            if has_pvh_entry(&elf) {
                Ok(elf)
            } else {
                Err(BundleError::NoPvhEntry)
            }
        });
    Ok(BootImage { release, elf })
}

fn release(image: &[u8]) -> Option<String> {
    let start = usize::from(u16_at(image, 0x20e)?) + 0x200;
    let version = image.get(start..)?.split(|byte| *byte == 0).next()?;
    let word = version.split(|byte| *byte == b' ').next()?;
    let plausible = !word.is_empty()
        && word.len() <= 64
        && word
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"-+._~".contains(b));
    plausible.then(|| String::from_utf8_lossy(word).into_owned())
}

fn payload(image: &[u8]) -> Option<&[u8]> {
    let sectors = match image.get(0x1f1)? {
        0 => 4,
        sectors => usize::from(*sectors),
    };
    let start = (sectors + 1) * 512 + usize::try_from(u32_at(image, 0x248)?).ok()?;
    let length = usize::try_from(u32_at(image, 0x24c)?).ok()?;
    image.get(start..start.checked_add(length)?)
}

fn unpack(payload: &[u8]) -> Result<Vec<u8>, BundleError> {
    match payload {
        [0x02, 0x21, 0x4c, 0x18, ..] => lz4_legacy::unpack(payload, KERNEL_MAX),
        [0x1f, 0x8b, ..] => bounded(flate2::read::GzDecoder::new(payload), "gzip"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let frame = zstd::stream::read::Decoder::with_buffer(payload)
                .map_err(|e| BundleError::Payload {
                    format: "zstd",
                    why: e.to_string(),
                })?
                .single_frame();
            bounded(frame, "zstd")
        }
        elf if is_elf(elf) => Ok(elf.to_vec()),
        _ => Err(BundleError::Payload {
            format: "kernel's",
            why: "not one of lz4, gzip and zstd".to_owned(),
        }),
    }
}

fn bounded(reader: impl Read, format: &'static str) -> Result<Vec<u8>, BundleError> {
    let mut out = Vec::new();
    let limit = u64::try_from(KERNEL_MAX).unwrap_or(u64::MAX);
    reader
        .take(limit)
        .read_to_end(&mut out)
        .map_err(|e| BundleError::Payload {
            format,
            why: e.to_string(),
        })?;
    if out.len() >= KERNEL_MAX {
        let why = "larger than any kernel".to_owned();
        return Err(BundleError::Payload { format, why });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::elf::with_note;

    fn boot_image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 2 * 512 + 64];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
        image[0x248..0x24c].copy_from_slice(&64_u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
        let version = b"6.1.0-57-cloud-amd64 (builder@example) #1 SMP\0";
        image[0x300..0x300 + version.len()].copy_from_slice(version);
        image.extend_from_slice(payload);
        image
    }

    #[test]
    fn a_kernel_compressed_in_any_of_the_usual_ways_is_unpacked() {
        let kernel = with_note(b"Xen\0", 18);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&kernel).unwrap();
        let mut lz4 = lz4_legacy::pack(&kernel);
        lz4.extend_from_slice(&u32::try_from(kernel.len()).unwrap().to_le_bytes());
        let mut zstd = zstd::encode_all(&kernel[..], 1).unwrap();
        zstd.extend_from_slice(&u32::try_from(kernel.len()).unwrap().to_le_bytes());
        for payload in [gzip.finish().unwrap(), lz4, zstd, kernel.clone()] {
            let image = read(&boot_image(&payload)).unwrap();
            assert_eq!(image.release, "6.1.0-57-cloud-amd64");
            assert_eq!(image.elf.unwrap(), kernel);
        }
    }

    #[test]
    fn a_kernel_without_a_pvh_entry_is_not_taken_for_one() {
        for kernel in [with_note(b"Xen\0", 17), with_note(b"GNU\0", 18)] {
            let image = read(&boot_image(&kernel)).unwrap();
            assert!(
                matches!(image.elf, Err(BundleError::NoPvhEntry)),
                "{:?}",
                image.elf
            );
        }
    }

    #[test]
    fn an_unknown_compression_leaves_the_release_readable() {
        let image = read(&boot_image(b"\xfd7zXZ\0 and so on")).unwrap();
        assert_eq!(image.release, "6.1.0-57-cloud-amd64");
        assert!(image.elf.is_err());
    }

    #[test]
    fn an_image_cut_anywhere_is_refused_or_has_no_kernel() {
        let whole = boot_image(&lz4_legacy::pack(&with_note(b"Xen\0", 18)));
        for length in 0..whole.len() {
            if let Ok(image) = read(&whole[..length]) {
                assert!(image.elf.is_err(), "cut to {length}");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_behind_a_header_never_panic(
            mut bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0x300..0x500),
        ) {
            bytes[0x202..0x206].copy_from_slice(b"HdrS");
            let _ = read(&bytes);
        }
    }
}
