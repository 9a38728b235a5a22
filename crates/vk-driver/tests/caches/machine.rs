//! A cache through real microVMs.

use serde_json::json;

use crate::support::Started;
use crate::{Bench, assert_says, cache, cached};

/// CACHE-01, CACHE-07, GUEST-03
#[tokio::test]
async fn a_cache_goes_from_one_machine_to_the_next() {
    let Some(bench) = Bench::new() else { return };
    let make = "mkdir deps && head -c 3000000 /dev/zero > deps/a && echo b > deps/b && \
                chown 1000:1000 deps/b";
    let look = "cat deps/b && stat -c %u:%s deps/b deps/a";
    for (script, policy) in [(make, "push"), (look, "pull-push")] {
        let mut job = cached(&[script], cache("k"));
        job["caches"][0]["policy"] = json!(policy);
        let mut context = bench.context(job);
        context.vmm = bench.node.qemu().await;
        bench.registry.asked();
        let ran = Started::new(context).end().await;
        assert_eq!(ran.result.failure, None, "{}", ran.output);
        if policy == "push" {
            assert_says(
                &ran,
                &["Cache k is saved: ", " of 3 files and directories, 3.00 MB"],
            );
        } else {
            assert_says(&ran, &["Cache hit for k"]);
            assert!(ran.has("1000:2") && ran.has("0:3000000"), "{}", ran.output);
            // Owners and times are as they were: the archive is the same again.
            assert_says(&ran, &["Cache k is unchanged"]);
            let asked = bench.registry.asked();
            assert_eq!(asked.len(), 3, "{asked:?}");
        }
    }
}
