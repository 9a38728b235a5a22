//! Caches (SPEC-03, SPEC-46 to SPEC-48, SPEC-73, SPEC-74).

use gitlab_runner_api::response;
use vk_hub_proto::job::{CachePolicy, CacheSpec, Sanitized, sanitize};

use super::expand::Expander;
use super::job::when;

/// A cache as the node takes it; none where its key comes to nothing.
pub(crate) fn cache(
    from: &response::Cache,
    default_key: &str,
    expander: &Expander,
    warnings: &mut Vec<String>,
) -> Option<CacheSpec> {
    let key = match from.key.as_str() {
        "" => clean(default_key, default_key, warnings),
        key => clean(key, &expander.expand(key), warnings),
    };
    let Some(key) = key else {
        // Upstream says so at both ends of a job; the node hears nothing of this cache.
        for what in ["extraction", "archiving"] {
            warnings.push(format!("Skipping cache {what} due to empty cache key"));
        }
        return None;
    };
    let fallbacks = from.fallback_keys.iter();
    Some(CacheSpec {
        key,
        fallback_keys: fallbacks
            .filter_map(|key| clean(key, &expander.expand(key), warnings))
            .collect(),
        untracked: from.untracked,
        paths: from.paths.clone(),
        policy: policy(&from.policy, expander, warnings),
        when: when(&from.when),
    })
}

/// A key made fit. What is said of it names it as it was written, not its value.
fn clean(written: &str, expanded: &str, warnings: &mut Vec<String>) -> Option<String> {
    let key = match sanitize(expanded) {
        Sanitized::Same => expanded.to_owned(),
        Sanitized::Changed(clean) => {
            warnings.push(format!("cache key {written:?} was sanitized"));
            clean
        }
        Sanitized::Nothing => {
            warnings.push(format!("cache key {written:?} could not be sanitized"));
            return None;
        }
    };
    (!key.is_empty()).then_some(key)
}

fn policy(written: &str, expander: &Expander, warnings: &mut Vec<String>) -> CachePolicy {
    match expander.expand(written).as_str() {
        "" | "pull-push" => CachePolicy::PullPush,
        "pull" => CachePolicy::Pull,
        "push" => CachePolicy::Push,
        _ => {
            warnings.push(format!(
                "cache policy {written:?} is unknown; pull-push is used"
            ));
            CachePolicy::PullPush
        }
    }
}
