//! Bodies in and out, with their bounds.

use std::time::Duration;

use futures_util::{Stream, TryStreamExt as _};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::{Response, StatusCode};

use crate::gitlab::Reply;

/// Any error that ends a body early.
pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// A response's body.
pub(super) type OutBody = UnsyncBoxBody<Bytes, BoxError>;

/// A body that brings nothing for so long is given up.
pub(super) const STALL: Duration = Duration::from_secs(60);

/// Time for the first half of an answer to leave before it breaks off.
const LEAVE: Duration = Duration::from_millis(50);

/// Why a body was not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("the body is larger than {0} bytes")]
    TooLarge(u64),
    #[error("the body ended early")]
    Cut(#[source] BoxError),
    #[error("the body brought nothing for {} s", .0.as_secs())]
    Stalled(Duration),
}

/// The answer closes the connection instead of being sent.
#[derive(Debug, thiserror::Error)]
#[error("the answer is withheld on purpose")]
pub(super) struct Withheld;

/// The next data of a body, or nothing at its end.
async fn next<B>(body: &mut B, stall: Duration) -> Result<Option<Bytes>, ReadError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    loop {
        let frame = tokio::time::timeout(stall, body.frame()).await;
        match frame.map_err(|_| ReadError::Stalled(stall))? {
            None => return Ok(None),
            Some(Err(error)) => return Err(ReadError::Cut(error.into())),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

/// Reads a body of at most `most` bytes.
pub(super) async fn read<B>(mut body: B, most: u64, stall: Duration) -> Result<Vec<u8>, ReadError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    if body.size_hint().lower() > most {
        return Err(ReadError::TooLarge(most));
    }
    let mut bytes = Vec::new();
    while let Some(data) = next(&mut body, stall).await? {
        if (bytes.len() + data.len()) as u64 > most {
            return Err(ReadError::TooLarge(most));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

/// A body's data as it comes.
pub(super) fn data(body: Incoming) -> impl Stream<Item = Result<Bytes, ReadError>> + Send {
    futures_util::stream::try_unfold(body, |mut body| async move {
        Ok(next(&mut body, STALL).await?.map(|data| (data, body)))
    })
}

/// A body that is all there.
pub(super) fn full(bytes: impl Into<Bytes>) -> OutBody {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// A body that breaks off after the first half of `bytes`.
pub(super) fn half(mut bytes: Bytes) -> OutBody {
    bytes.truncate(bytes.len() / 2);
    let parts = futures_util::stream::try_unfold(Some(bytes), |rest| async move {
        if let Some(bytes) = rest {
            return Ok(Some((Frame::data(bytes), None)));
        }
        // What was said before an error is dropped where it has not left yet.
        tokio::time::sleep(LEAVE).await;
        Err(BoxError::from(Withheld))
    });
    BodyExt::boxed_unsync(StreamBody::new(parts))
}

/// A body that comes in eight parts with a pause before each.
pub(super) fn trickled(bytes: Bytes, apart: Duration) -> OutBody {
    let size = bytes.len().div_ceil(8).max(1);
    let parts = futures_util::stream::try_unfold(bytes, move |mut rest| async move {
        if rest.is_empty() {
            return Ok::<_, BoxError>(None);
        }
        tokio::time::sleep(apart).await;
        let part = rest.split_to(size.min(rest.len()));
        Ok(Some((Frame::data(part), rest)))
    });
    BodyExt::boxed_unsync(StreamBody::new(parts))
}

/// A body that is read from `reader` until its end.
pub(super) fn stream(reader: impl tokio::io::AsyncRead + Send + 'static) -> OutBody {
    let start = Box::pin(reader);
    let parts = futures_util::stream::try_unfold(start, |mut reader| async move {
        let mut buffer = vec![0_u8; 64 << 10];
        let count = tokio::io::AsyncReadExt::read(&mut reader, &mut buffer).await?;
        buffer.truncate(count);
        let frame = Frame::data(Bytes::from(buffer));
        Ok::<_, std::io::Error>((count > 0).then_some((frame, reader)))
    });
    BodyExt::boxed_unsync(StreamBody::new(parts.map_err(BoxError::from)))
}

/// GitLab's answer as a response.
pub(super) fn respond(reply: Reply) -> Response<OutBody> {
    let bodiless = reply.body.is_empty();
    let mut response = Response::new(full(reply.body));
    *response.status_mut() =
        StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    if !bodiless {
        headers.insert(
            "content-type",
            hyper::header::HeaderValue::from_static("application/json"),
        );
    }
    for (name, value) in reply.headers {
        let name = hyper::header::HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, value.parse()) {
            headers.insert(name, value);
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    type Part = Result<Frame<Bytes>, BoxError>;

    #[tokio::test]
    async fn a_body_that_stalls_is_given_up() {
        let first: Part = Ok(Frame::data(Bytes::from_static(b"abc")));
        let parts = futures_util::StreamExt::chain(
            futures_util::stream::iter([first]),
            futures_util::stream::pending::<Part>(),
        );
        let read = read(StreamBody::new(parts), 10, Duration::from_millis(10)).await;
        assert!(matches!(read, Err(ReadError::Stalled(_))), "{read:?}");
    }

    #[tokio::test]
    async fn a_body_is_read_up_to_its_limit() {
        let body = || Full::new(Bytes::from_static(b"abc"));
        assert_eq!(read(body(), 3, STALL).await.unwrap(), b"abc");
        assert!(matches!(
            read(body(), 2, STALL).await,
            Err(ReadError::TooLarge(2))
        ));
    }
}
