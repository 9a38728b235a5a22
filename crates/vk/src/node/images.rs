//! Which images a node's jobs may have, as the daemon leaves it for their processes.

use serde::{Deserialize, Serialize};
use std::path::Path;
use vk_hub_proto::job::PullPolicy as Named;

use vk_image::{Bounds, PullPolicy, Rules};
use vk_node::config::{ImageStore, Images};

/// What of the disk images may take, as configured.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StoreSettings {
    max_total: Option<u64>,
    max_image: Option<u64>,
}

impl StoreSettings {
    pub(crate) fn of(store: ImageStore) -> StoreSettings {
        let ImageStore {
            max_total,
            max_image,
        } = store;
        StoreSettings {
            max_total,
            max_image,
        }
    }

    /// Where nothing is configured: by the disk that the state lies on.
    pub(crate) fn bounds(self, state_dir: &Path) -> Bounds {
        Bounds::of_disk(state_dir, self.max_image, self.max_total)
    }
}

/// What of the configuration is about images, but for the one of a job that names none.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ImageSettings {
    pull_policy: Vec<Named>,
    allowed_pull_policies: Vec<Named>,
    allowed_images: Vec<String>,
    allowed_users: Vec<String>,
}

impl Default for ImageSettings {
    fn default() -> Self {
        Self::of(&Images::default())
    }
}

impl ImageSettings {
    pub(crate) fn of(images: &Images) -> ImageSettings {
        let Images {
            pull_policy,
            allowed_pull_policies,
            allowed_images,
            allowed_users,
        } = images.clone();
        ImageSettings {
            pull_policy,
            allowed_pull_policies,
            allowed_images,
            allowed_users,
        }
    }

    /// The rules, with the image of a job that names none.
    pub(crate) fn rules(&self, default_image: Option<String>) -> Rules {
        let policies = |named: &[Named]| named.iter().copied().map(policy).collect();
        Rules {
            default_image,
            allowed_images: self.allowed_images.clone(),
            pull_policy: policies(&self.pull_policy),
            allowed_pull_policies: policies(&self.allowed_pull_policies),
            allowed_users: self.allowed_users.clone(),
        }
    }
}

fn policy(named: Named) -> PullPolicy {
    match named {
        Named::Always => PullPolicy::Always,
        Named::IfNotPresent => PullPolicy::IfNotPresent,
        Named::Never => PullPolicy::Never,
    }
}

#[cfg(test)]
mod tests {
    use vk_node::config::Config;

    use super::*;

    /// SPEC-39: what the file says is what jobs meet, by way of the settings that the daemon leaves.
    #[test]
    fn the_rules_are_those_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.toml");
        let rules = |keys: &str| {
            std::fs::write(&file, format!("[executor]\n{keys}")).unwrap();
            let config = Config::read(Some(&file)).unwrap();
            let left = serde_json::to_string(&ImageSettings::of(&config.images)).unwrap();
            let left: ImageSettings = serde_json::from_str(&left).unwrap();
            left.rules(Some("debian".to_owned()))
        };
        let all = rules(
            "pull_policy = [\"if-not-present\", \"always\"]\nallowed_users = [\"7\"]\n\
             allowed_pull_policies = [\"always\", \"never\"]\nallowed_images = [\"alpine:*\"]",
        );
        assert_eq!(
            all.pull_policy,
            [PullPolicy::IfNotPresent, PullPolicy::Always]
        );
        assert_eq!(
            all.allowed_pull_policies,
            [PullPolicy::Always, PullPolicy::Never]
        );
        assert_eq!(all.allowed_images, ["alpine:*"]);
        assert_eq!(all.allowed_users, ["7"]);
        assert_eq!(all.default_image.as_deref(), Some("debian"));
        let none = rules("");
        assert_eq!(none.pull_policy, [PullPolicy::Always]);
        assert_eq!(none.allowed_pull_policies, [PullPolicy::Always]);
        // What they may take goes the same way.
        let keys = "[images]\nmax_total = \"9G\"\nmax_image = \"1G\"";
        std::fs::write(&file, keys).unwrap();
        let config = Config::read(Some(&file)).unwrap();
        let left = serde_json::to_string(&StoreSettings::of(config.image_store)).unwrap();
        let left: StoreSettings = serde_json::from_str(&left).unwrap();
        let bounds = left.bounds(dir.path());
        assert_eq!((bounds.image, bounds.total), (1 << 30, 9 << 30));
        // As the settings of an earlier version, which said nothing of images.
        let before: ImageSettings = serde_json::from_str("{}").unwrap();
        assert_eq!(before.rules(None).pull_policy, [PullPolicy::Always]);
    }
}
