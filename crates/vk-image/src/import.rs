//! Images from files: a root file system, a Docker archive, an OCI layout.

mod docker;
mod files;
mod layout;
mod survey;

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::Path;

use vk_erofs::Whiteouts;
use vk_oci::{Digest, ImageConfig, Platform, Reference};

use crate::build::{Build, Identity, Layer};
use crate::compression::{Compression, decompress};
use crate::error::Error;
use crate::record::Origin;
use crate::store::{Lease, Store};
use files::Files;
use survey::{Kind, survey};

/// An import under way.
struct Import<'a> {
    /// What is imported, for messages.
    path: &'a Path,
    platform: &'a Platform,
    build: Build,
}

impl Store {
    /// Imports a file or directory as the image `name`: the tar of a root file system, a `docker
    /// save` archive, or an OCI layout as directory or tar; archives and layers plain, gzip or zstd.
    /// Of an index, the image for `platform` is taken.
    ///
    /// # Errors
    /// A bad name, a file of no such kind or a damaged one, a full disk.
    pub fn import(&self, path: &Path, name: &str, platform: &Platform) -> Result<Lease, Error> {
        let import = Import {
            path,
            platform,
            build: self.begin_import(name)?,
        };
        let opening = Error::file("opening", path);
        match fs::metadata(path) {
            Ok(meta) if meta.is_dir() => import.directory(),
            Ok(_) => import.file(File::open(path).map_err(opening)?),
            Err(error) => Err(opening(error)),
        }
    }

    /// Imports what comes from a stream, such as standard input; it is written to a file first.
    ///
    /// # Errors
    /// As [`Store::import`], and a stream that fails.
    pub fn import_stream(
        &self,
        mut input: impl Read,
        name: &str,
        platform: &Platform,
    ) -> Result<Lease, Error> {
        let path = Path::new("(standard input)");
        let import = Import {
            path,
            platform,
            build: self.begin_import(name)?,
        };
        let file = import.spool(&mut input)?;
        import.file(file)
    }

    fn begin_import(&self, name: &str) -> Result<Build, Error> {
        let reference: Reference = name.parse()?;
        if reference.digest().is_some() {
            return Err(Error::NameWithDigest { name: name.into() });
        }
        Build::new(self, reference)
    }
}

impl Import<'_> {
    fn directory(self) -> Result<Lease, Error> {
        if !self.path.join("oci-layout").is_file() {
            let what = "it is a directory but no OCI layout; a root file system is imported as a tar: \
                 tar -C DIR -c . | vk image import - NAME";
            return Err(Error::import(self.path, what));
        }
        let files = Files::directory(self.path);
        self.layout(&files)
    }

    fn file(self, mut file: File) -> Result<Lease, Error> {
        let (compression, kind) = survey(&mut file, self.path)?;
        self.rewind(&mut file)?;
        let (index, is_layout) = match kind {
            Kind::RootFileSystem => return self.root_file_system(file),
            Kind::Layout(index) => (index, true),
            Kind::DockerArchive(index) => (index, false),
        };
        let file = match compression {
            Compression::None => file,
            // Its parts are read in any order.
            _ => {
                let (_, mut plain) = decompress(file).map_err(Error::file("reading", self.path))?;
                self.spool(&mut plain)?
            }
        };
        let files = Files::archive(self.path, file, index);
        if is_layout {
            self.layout(&files)
        } else {
            self.docker_archive(&files)
        }
    }

    /// One layer that is no layer, and a configuration that says nothing.
    fn root_file_system(mut self, file: File) -> Result<Lease, Error> {
        let diff_id = self.build.layer(Layer {
            stored: Box::new(file),
            stored_digest: None,
            diff_id: None,
            whiteouts: Whiteouts::Literal,
        })?;
        let Platform {
            os, architecture, ..
        } = self.platform;
        let config = format!(
            r#"{{"architecture":"{architecture}","os":"{os}","config":{{}},"rootfs":{{"type":"layers","diff_ids":["{diff_id}"]}}}}"#
        );
        let bytes = config.into_bytes();
        let config = ImageConfig::parse(&bytes)
            .map_err(|source| self.document("its configuration", source))?;
        self.build.commit(Identity::new(
            Digest::of(&bytes),
            config,
            bytes,
            Origin::Imported,
        ))
    }

    fn spool(&self, input: &mut impl Read) -> Result<File, Error> {
        let dir = self.build.scratch();
        let file = tempfile::tempfile_in(dir).map_err(Error::file("making a file in", dir))?;
        let mut guarded = self.build.guarded(file);
        io::copy(input, &mut guarded).map_err(Error::file("copying the archive to", dir))?;
        let mut file = guarded.file;
        self.rewind(&mut file)?;
        Ok(file)
    }

    fn rewind(&self, file: &mut File) -> Result<(), Error> {
        match file.rewind() {
            Ok(()) => Ok(()),
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SPIPE.raw_os_error()) => {
                Err(Error::import(
                    self.path,
                    "it is a pipe: give `-` and pipe into standard input",
                ))
            }
            Err(error) => Err(Error::file("reading", self.path)(error)),
        }
    }

    fn document(&self, document: &str, source: vk_oci::ManifestError) -> Error {
        Error::Document {
            path: self.path.to_owned(),
            document: document.into(),
            source,
        }
    }

    fn refuse(&self, what: impl Into<String>) -> Error {
        Error::import(self.path, what)
    }
}
