//! What came of a job request.

use std::fmt;

use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use vk_hub_proto::Secret;

use super::job::JobResponse;
use crate::answer::Outcome;

/// The longest token taken for one: no server takes a longer header (SPEC-79).
const LONGEST_TOKEN: usize = 64 * 1024;

/// What came of a job request.
#[derive(Clone, Debug)]
pub enum JobRequestOutcome {
    /// 201: a job.
    Job(Box<JobResponse>, Outcome),
    /// 201 with a job that cannot be read: what is known of it (SPEC-69).
    Undecodable(Undecodable, Outcome),
    /// Any other answer, or none.
    None(Outcome),
}

/// A job that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undecodable {
    /// Its number and token, where even these can be read: the job can then be failed.
    pub job: Option<(u64, Secret)>,
    /// What is wrong with it.
    pub why: String,
}

impl JobRequestOutcome {
    /// Reads an answer. A body without a status is the beginning of a 201's that did not come whole.
    pub(crate) fn read(outcome: Outcome, body: &[u8]) -> JobRequestOutcome {
        let known = || Known::read(body).job();
        match outcome.status {
            Some(201) => {}
            None if !body.is_empty() => {
                return match known() {
                    Some(job) => {
                        let why = format!("it did not come whole: {}", outcome.message);
                        let job = Some(job);
                        JobRequestOutcome::Undecodable(Undecodable { job, why }, outcome)
                    }
                    None => JobRequestOutcome::None(outcome),
                };
            }
            _ => return JobRequestOutcome::None(outcome),
        }
        let why = match decoded(body) {
            Ok(job) if job.id <= 0 => "it has no id".to_owned(),
            Ok(job) if !is_token(job.token.expose()) => {
                "it has no token that can be sent".to_owned()
            }
            Ok(job) => return JobRequestOutcome::Job(Box::new(job), outcome),
            Err(why) => why,
        };
        let job = known();
        JobRequestOutcome::Undecodable(Undecodable { job, why }, outcome)
    }
}

/// Whether a text can be sent as a token: it goes into a header.
fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= LONGEST_TOKEN
        && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Reads a job; what is wrong with it is said by name and place, since an error's own words may repeat
/// what it read.
fn decoded(body: &[u8]) -> Result<JobResponse, String> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let job = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        what(&path, error.inner())
    })?;
    reader.end().map_err(|error| what("", &error))?;
    Ok(job)
}

fn what(path: &str, error: &serde_json::Error) -> String {
    let path: String = path
        .chars()
        .filter(|one| !one.is_control())
        .take(128)
        .collect();
    let field = match path.as_str() {
        "" | "." | "?" => "it".to_owned(),
        path => format!("the field {path}"),
    };
    let kind = match error.classify() {
        serde_json::error::Category::Data => {
            // Only a field's name of ours stands in these words.
            let twice = error.to_string().starts_with("duplicate field");
            if twice {
                "has a field twice"
            } else {
                "is of another type or size than it should be"
            }
        }
        serde_json::error::Category::Eof => "breaks off",
        _ => "is no JSON",
    };
    format!(
        "{field} {kind}, at line {} column {}",
        error.line(),
        error.column()
    )
}

/// What of a job that cannot be read can be: as far as the text goes, and whatever stands elsewhere.
#[derive(Default)]
struct Known {
    id: Option<u64>,
    token: Option<Secret>,
}

impl Known {
    fn read(body: &[u8]) -> Known {
        let mut known = Known::default();
        let mut number = None;
        let mut reader = serde_json::Deserializer::from_slice(body);
        let fields = Fields {
            known: &mut known,
            number: &mut number,
        };
        let read = reader.deserialize_map(fields);
        // A number that the text ends with may lack digits.
        let is_whole = !read.is_err_and(|error| error.is_eof());
        if let Some(number) = number.filter(|_| is_whole) {
            known.id = number;
        }
        known
    }

    fn job(self) -> Option<(u64, Secret)> {
        Some((self.id?, self.token?))
    }
}

fn id(value: &Value) -> Option<u64> {
    let most = i64::MAX.unsigned_abs();
    value.as_u64().filter(|id| (1..=most).contains(id))
}

fn token(value: &Value) -> Option<Secret> {
    let token = value.as_str().filter(|token| is_token(token));
    token.map(Secret::from)
}

struct Fields<'a> {
    known: &'a mut Known,
    /// The number that stands last, which nothing follows yet.
    number: &'a mut Option<Option<u64>>,
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a job")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            if let Some(number) = self.number.take() {
                self.known.id = number;
            }
            match name.as_str() {
                "id" => *self.number = Some(id(&map.next_value()?)),
                "token" => self.known.token = token(&map.next_value()?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(text: impl AsRef<[u8]>) -> Option<(u64, String)> {
        let job = Known::read(text.as_ref()).job();
        job.map(|(id, token)| (id, token.expose().to_owned()))
    }

    /// SPEC-69
    #[test]
    fn number_and_token_are_read_as_far_as_the_text_goes() {
        let found = Some((10, "t".to_owned()));
        let good: [&[u8]; 11] = [
            br#"{"id":10,"token":"t"}"#,
            br#"{"token":"t","x":{"y":[1,{}]},"id":10}"#,
            br#"{"id":10,"token":"t","steps":"none"}"#,
            br#"{"id":10,"token":"t","steps":[{"na"#,
            br#"{"id":10,"token":"t","x":tru"#,
            b"{\"id\":10,\"token\":\"t\",\"x\":\"\xff\"}",
            br#"{"id":10,"token":"t"} and more"#,
            br#"{"id":9,"id":10,"token":"t"}"#,
            br#"{"id":10,"token":"t",'x"#,
            br#"{"id":10,"token":"t""#,
            br#"{"token":"t","id":10,'x"#,
        ];
        for text in good {
            assert_eq!(known(text), found, "{}", String::from_utf8_lossy(text));
        }
        let deep = format!(
            "{{\"id\":10,\"x\":{}1{},\"token\":\"t\"}}",
            "[".repeat(9000),
            "]".repeat(9000)
        );
        assert_eq!(known(deep), found);
        let bad: [&[u8]; 18] = [
            b"",
            b"[]",
            b"null",
            b"<html>",
            br#"{"token":"t","id":10"#,
            br#"{"token":"t","id":1"#,
            br#"{"id":10,"token":"t"#,
            br#"{"id":10}"#,
            br#"{"token":"t"}"#,
            br#"{"id":0,"token":"t"}"#,
            br#"{"id":-10,"token":"t"}"#,
            br#"{"id":9223372036854775808,"token":"t"}"#,
            br#"{"id":10.0,"token":"t"}"#,
            br#"{"id":"10","token":"t"}"#,
            br#"{"id":10,"token":""}"#,
            br#"{"id":10,"token":7}"#,
            br#"{"id":10,"token":"a\nb"}"#,
            br#"{"id":10,"token":"\u00fc"}"#,
        ];
        for text in bad {
            assert_eq!(known(text), None, "{}", String::from_utf8_lossy(text));
        }
        let longest = "t".repeat(LONGEST_TOKEN);
        assert!(known(format!("{{\"id\":10,\"token\":\"{longest}\"}}")).is_some());
        assert!(known(format!("{{\"id\":10,\"token\":\"{longest}t\"}}")).is_none());
    }

    /// CRED-01
    #[test]
    fn what_is_wrong_is_said_by_name_and_place_and_repeats_nothing() {
        let rows = [
            (
                r#"{"id":1,"steps":[{"timeout":"s3cret"}]}"#,
                "the field steps[0].timeout is of another type or size",
            ),
            (
                r#"{"id":1,"variables":[{"key":"a"},{"value":["s3cret"]}]}"#,
                "the field variables[1].value is of another type",
            ),
            (
                r#"{"id":1,"variables":{"s3cret":1}}"#,
                "the field variables is of another type",
            ),
            (r#"{"id":1,"id":2}"#, "has a field twice"),
            (
                r#"{"id":1,"job_info":{"name":"s3c"#,
                "the field job_info.name breaks off",
            ),
            (r#"{"id":1} s3cret"#, "it is no JSON, at line 1 column 10"),
            (r#"["s3cret"]"#, "is of another type"),
        ];
        for (text, said) in rows {
            let why = decoded(text.as_bytes()).unwrap_err();
            assert!(
                why.contains(said) && !why.contains("s3c"),
                "{why}, not {said}"
            );
        }
    }
}
