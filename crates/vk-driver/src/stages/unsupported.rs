//! What a job may name and this node has not yet: it ends the job before anything is done for it,
//! never left out silently.

use vk_hub_proto::job::CiJob;

/// How an image is named that the node would build from the job's checkout.
const BUILT: [&str; 2] = ["dockerfile:", "compose:"];
/// The registry that jobs would see inside their guests.
const PROXY: &str = "registry.vk";

/// What the job asks for and cannot have, with what to do; none where it asks for nothing such.
/// `image` is its image's name, variables expanded.
pub(super) fn asked(job: &CiJob, image: &str) -> Option<String> {
    if !job.services.is_empty() {
        let names: Vec<_> = job.services.iter().map(|one| one.name.as_str()).collect();
        return Some(format!(
            "services are not supported by this node yet, and the job asks for {}: start what it \
             needs in its script, or give the job tags of another runner",
            names.join(", ")
        ));
    }
    if BUILT.iter().any(|prefix| image.starts_with(prefix)) {
        return Some(format!(
            "this node builds no images yet, and the job's image is {image}: build it in a job of \
             its own, push it to a registry, and name it from there"
        ));
    }
    let host = image.split('/').next().unwrap_or_default();
    if image.contains('/') && host.split(':').next() == Some(PROXY) {
        return Some(format!(
            "{PROXY} is not supported by this node yet, and the job's image is {image}: name the \
             image by its own registry's host"
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use vk_hub_proto::job::Image;

    use super::asked;
    use crate::testing::job;

    #[test]
    fn services_built_images_and_the_registry_in_the_guest_are_refused_with_what_to_do() {
        for (image, part) in [
            ("dockerfile:ci/Dockerfile", "push it to a registry"),
            ("compose:app", "builds no images yet"),
            ("registry.vk/group/tool:1", "its own registry's host"),
            ("registry.vk:80/group/tool", "registry.vk is not supported"),
        ] {
            let said = asked(&job(), image).unwrap();
            assert!(said.contains(part) && said.contains(image), "{said}");
        }
        for image in [
            "",
            "dockerfile",
            "compose/app:1",
            "registry.vk",
            "registry.vkontakte/a",
        ] {
            assert_eq!(asked(&job(), image), None, "{image}");
        }
        let mut with = job();
        for name in ["postgres:16", "redis"] {
            with.services.push(Image {
                name: name.to_owned(),
                ..Image::default()
            });
        }
        let said = asked(&with, "debian").unwrap();
        assert!(
            said.contains("asks for postgres:16, redis: start"),
            "{said}"
        );
    }
}
