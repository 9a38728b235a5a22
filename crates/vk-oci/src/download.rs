//! A blob into a file: size and digest checked, broken transfers taken up where they broke.

use std::io::{self, SeekFrom};

use reqwest::{Response, StatusCode};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

use crate::client::{Ask, Client};
use crate::digest::Hasher;
use crate::error::Error;
use crate::manifest::Descriptor;
use crate::reference::Reference;

/// A transfer under way.
struct Transfer<'a> {
    image: &'a Reference,
    blob: &'a Descriptor,
    file: &'a mut File,
    hasher: Hasher,
    received: u64,
}

/// How one try of a transfer ended.
enum End {
    Complete,
    Broken(reqwest::Error),
}

impl Client {
    /// Fetches a blob into `file`, going on after what the file already holds. `progress` gets the
    /// bytes received so far. The file is not synced.
    ///
    /// # Errors
    /// A registry that fails after all tries, content that is not what the descriptor says (the file
    /// is emptied then), a file that cannot be written.
    pub async fn download(
        &self,
        image: &Reference,
        blob: &Descriptor,
        file: &mut File,
        mut progress: impl FnMut(u64),
    ) -> Result<(), Error> {
        let mut transfer = Transfer {
            image,
            blob,
            file,
            hasher: Hasher::default(),
            received: 0,
        };
        transfer.take_up().await?;
        let mut attempt = 0;
        while transfer.received < blob.size {
            attempt += 1;
            let before = transfer.received;
            let path = format!("blobs/{}", blob.digest);
            let response = self.send(image, &Ask::blob(&path, before)).await?;
            let at = response.url().clone();
            match transfer.receive(response, &mut progress).await? {
                End::Complete => break,
                // Progress deserves new tries.
                End::Broken(_) if transfer.received > before => attempt = 0,
                End::Broken(_) if attempt < self.config.attempts => {
                    self.back_off(attempt, None).await
                }
                End::Broken(source) => {
                    let at = crate::origin::authority(&at);
                    return Err(Error::Unreachable {
                        image: image.familiar(),
                        at,
                        source: source.without_url(),
                    });
                }
            }
        }
        transfer.check().await
    }
}

impl Transfer<'_> {
    fn local(&self, source: io::Error) -> Error {
        Error::Local {
            image: self.image.familiar(),
            source,
        }
    }

    /// Hashes what an earlier transfer left; more than the blob has is thrown away.
    async fn take_up(&mut self) -> Result<(), Error> {
        self.file
            .seek(SeekFrom::Start(0))
            .await
            .map_err(|error| self.local(error))?;
        let mut buffer = vec![0; 128 << 10];
        loop {
            let read = self
                .file
                .read(&mut buffer)
                .await
                .map_err(|error| self.local(error))?;
            if read == 0 {
                break;
            }
            self.received += read as u64;
            self.hasher.update(buffer.get(..read).unwrap_or_default());
        }
        if self.received > self.blob.size {
            self.start_over().await?;
        }
        Ok(())
    }

    async fn start_over(&mut self) -> Result<(), Error> {
        self.hasher = Hasher::default();
        self.received = 0;
        self.file
            .set_len(0)
            .await
            .map_err(|error| self.local(error))?;
        self.file
            .seek(SeekFrom::Start(0))
            .await
            .map_err(|error| self.local(error))?;
        Ok(())
    }

    async fn receive(
        &mut self,
        mut response: Response,
        progress: &mut impl FnMut(u64),
    ) -> Result<End, Error> {
        if response.status() != StatusCode::PARTIAL_CONTENT && self.received > 0 {
            self.start_over().await?;
        }
        let end = loop {
            match response.chunk().await {
                Ok(Some(chunk)) => self.take(&chunk).await?,
                Ok(None) => break End::Complete,
                Err(error) => break End::Broken(error),
            }
            progress(self.received);
        };
        self.file.flush().await.map_err(|error| self.local(error))?;
        Ok(end)
    }

    async fn take(&mut self, chunk: &[u8]) -> Result<(), Error> {
        self.received += chunk.len() as u64;
        if self.received > self.blob.size {
            let what = format!(
                "more than the {} bytes that {} has",
                self.blob.size, self.blob.digest
            );
            self.start_over().await?;
            return Err(Error::Size {
                image: self.image.familiar(),
                what,
            });
        }
        self.hasher.update(chunk);
        self.file
            .write_all(chunk)
            .await
            .map_err(|error| self.local(error))
    }

    async fn check(mut self) -> Result<(), Error> {
        if self.received != self.blob.size {
            let Self { blob, received, .. } = &self;
            let what = format!(
                "{received} of the {} bytes that {} has",
                blob.size, blob.digest
            );
            return Err(Error::Size {
                image: self.image.familiar(),
                what,
            });
        }
        let found = std::mem::take(&mut self.hasher).finish();
        if found == self.blob.digest {
            return Ok(());
        }
        self.start_over().await?;
        Err(Error::Digest {
            image: self.image.familiar(),
            wanted: self.blob.digest,
            found,
        })
    }
}
