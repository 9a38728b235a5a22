//! `[executor]`: which images jobs may have, when registries are asked for them, and as whom scripts
//! may run (SPEC-39). `[images]`: what of the disk they may take.

use serde::Deserialize;
use vk_hub_proto::job::PullPolicy;

use crate::size::Size;

/// Policies of one list at most: each is a try.
const POLICIES_MAX: usize = 10;
/// Patterns of images, and names of users, at most.
const ALLOWED_MAX: usize = 256;
/// Bytes of one of those at most.
const ALLOWED_BYTES: usize = 1024;

/// What the node says of jobs' images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    /// Of a job that asks for none, tried in order; at least one.
    pub pull_policy: Vec<PullPolicy>,
    /// What a job may ask for; at least one of them is the node's own.
    pub allowed_pull_policies: Vec<PullPolicy>,
    /// Patterns of names; empty allows all.
    pub allowed_images: Vec<String>,
    /// Whom a job may name as its scripts' user; empty allows all.
    pub allowed_users: Vec<String>,
}

impl Default for Images {
    fn default() -> Self {
        Self {
            pull_policy: vec![PullPolicy::Always],
            allowed_pull_policies: vec![PullPolicy::Always],
            allowed_images: Vec::new(),
            allowed_users: Vec::new(),
        }
    }
}

/// `"a"` or `["a", "b"]`.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a text, or a list of texts")]
pub(super) enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    fn as_slice(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::More(more) => more,
        }
    }
}

/// What of the disk images may take; by the disk where not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageStore {
    /// All of them, in bytes.
    pub max_total: Option<u64>,
    /// What one's layers may hold, in bytes.
    pub max_image: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ImagesTable {
    max_total: Option<Size>,
    max_image: Option<Size>,
}

/// With less there is no image.
const STORE_MIN: u64 = 16 << 20;
/// No image is larger, whatever is said.
const IMAGE_MAX: u64 = 256 << 30;

pub(super) fn image_store(table: &ImagesTable) -> Result<ImageStore, (&'static str, &'static str)> {
    let (max_total, max_image) = (
        table.max_total.map(Size::bytes),
        table.max_image.map(Size::bytes),
    );
    let is_less = |bytes: Option<u64>| bytes.is_some_and(|bytes| bytes < STORE_MIN);
    if is_less(max_total) {
        return Err(("images.max_total", "it must be at least 16M"));
    }
    if is_less(max_image) || max_image > Some(IMAGE_MAX) {
        return Err(("images.max_image", "it must be 16M to 256G"));
    }
    if max_image > max_total && max_total.is_some() {
        return Err(("images.max_image", "it is more than max_total"));
    }
    Ok(ImageStore {
        max_total,
        max_image,
    })
}

type Wrong = (&'static str, String);

/// What a file's keys make; else which key is wrong, and what to do.
pub(super) fn images(table: &super::ExecutorTable) -> Result<Images, Wrong> {
    let own = policies("executor.pull_policy", table.pull_policy.as_ref())?;
    let own = own.unwrap_or_else(|| Images::default().pull_policy);
    let key = "executor.allowed_pull_policies";
    let allowed = policies(key, table.allowed_pull_policies.as_ref())?;
    let allowed = allowed.unwrap_or_else(|| own.clone());
    if !own.iter().any(|policy| allowed.contains(policy)) {
        let must = format!(
            "none of the node's own pull_policy ({}) is among them, so that no job without one of \
             its own could run: add it, or change pull_policy",
            list(&own)
        );
        return Err((key, must));
    }
    Ok(Images {
        pull_policy: own,
        allowed_pull_policies: allowed,
        allowed_images: allowed_list(
            "executor.allowed_images",
            "a pattern of images such as \"registry.example.com/**\"",
            &table.allowed_images,
            vk_image::is_pattern,
        )?,
        allowed_users: allowed_list(
            "executor.allowed_users",
            "a user such as \"1000:1000\", as jobs write it",
            &table.allowed_users,
            |_| true,
        )?,
    })
}

fn policies(
    key: &'static str,
    given: Option<&OneOrMore>,
) -> Result<Option<Vec<PullPolicy>>, Wrong> {
    let Some(given) = given else {
        return Ok(None);
    };
    let read = |text: &String| match text.as_str() {
        "always" => Ok(PullPolicy::Always),
        "if-not-present" => Ok(PullPolicy::IfNotPresent),
        "never" => Ok(PullPolicy::Never),
        _ => {
            let must = format!(
                "{text:?} is no policy: each is \"always\", \"if-not-present\" or \"never\""
            );
            Err((key, must))
        }
    };
    let found: Vec<_> = given
        .as_slice()
        .iter()
        .map(read)
        .collect::<Result<_, _>>()?;
    if found.is_empty() || found.len() > POLICIES_MAX {
        let must = format!("it must have 1 to {POLICIES_MAX} policies, or be left out");
        return Err((key, must));
    }
    Ok(Some(found))
}

fn list(policies: &[PullPolicy]) -> String {
    let names = policies.iter().map(|policy| match policy {
        PullPolicy::Always => "\"always\"",
        PullPolicy::IfNotPresent => "\"if-not-present\"",
        PullPolicy::Never => "\"never\"",
    });
    names.collect::<Vec<_>>().join(", ")
}

fn allowed_list(
    key: &'static str,
    what: &str,
    given: &[String],
    has_form: fn(&str) -> bool,
) -> Result<Vec<String>, Wrong> {
    if given.len() > ALLOWED_MAX {
        let must = format!("there are at most {ALLOWED_MAX}: leave some out");
        return Err((key, must));
    }
    let sound = |text: &&String| {
        !text.trim().is_empty()
            && text.len() <= ALLOWED_BYTES
            && !text.chars().any(char::is_control)
            && has_form(text)
    };
    if let Some(wrong) = given.iter().find(|text| !sound(text)) {
        let shown: String = wrong.chars().take(40).collect();
        let must = format!("{shown:?} is none: each is {what}, of at most {ALLOWED_BYTES} bytes");
        return Err((key, must));
    }
    Ok(given.to_vec())
}
