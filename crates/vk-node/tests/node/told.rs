//! What a node tells its hub of itself.

use vk_hub_proto::node_session::NodeMessage;

use crate::daemon::Node;
use crate::hub::Hub;

/// PLACE-04, PLACE-09, REG-04: what the configuration says of the node stands in its first inventory
/// and report.
#[tokio::test]
async fn labels_limit_and_registry_are_told_as_configured() {
    let hub = Hub::new().await;
    let node = Node::joined(&hub.url);
    let config = "state_dir = \"state\"\n[node]\nrunner = \"none\"\nlabels = [\"gpu\", \"rack-7\"]\n\
                  [registry]\nrepo = \"registry.example:5000/ci\"\n[executor.schedule]\n\
                  mem_budget = \"6G\"\ndisk_budget = \"100G\"\nmax_concurrency = 3\n\
                  image_cache_idle_secs = 77\n";
    std::fs::write(node.path().join("config.toml"), config).unwrap();
    let _daemon = node.start();
    let (mut session, inventory) = hub.welcome_with_inventory().await;
    let labels: Vec<_> = inventory.labels.iter().map(ToString::to_string).collect();
    assert_eq!(labels, ["gpu", "rack-7"]);
    let registry = inventory.registry_url.as_deref();
    assert_eq!(registry, Some("https://registry.example:5000"));
    assert_eq!(inventory.versions.vk, "0.0.1");
    assert_eq!(inventory.runner, None);
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert_eq!(usize::try_from(inventory.hardware.cpus), Ok(cpus));
    assert_eq!(inventory.storage.len(), 1);
    let NodeMessage::Report(report) = session.next().await else {
        panic!("a report is due")
    };
    let placed = report.placed.unwrap();
    assert_eq!(placed.limit, Some(3));
    assert_eq!(placed.image_cache_idle_secs, Some(77));
    assert_eq!(placed.runner, None);
}
