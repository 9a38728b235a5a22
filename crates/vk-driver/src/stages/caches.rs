//! Caches, which this node does not keep yet: said, never silent.

use vk_hub_proto::job::When;

use crate::job::Job;
use crate::script::warning;

pub(super) fn restore(job: &Job) {
    for cache in &job.spec().caches {
        let text = format!(
            "Caches are not kept by this node yet: {} is not restored and will not be saved",
            cache.key
        );
        job.output.say(&warning(&text));
    }
}

pub(super) fn archive(job: &Job, success: bool) {
    let other = if success {
        When::OnFailure
    } else {
        When::OnSuccess
    };
    for cache in job.spec().caches.iter().filter(|cache| cache.when != other) {
        let text = format!(
            "Caches are not kept by this node yet: {} is not saved",
            cache.key
        );
        job.output.say(&warning(&text));
    }
}
