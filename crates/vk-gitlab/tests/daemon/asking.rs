//! `vk-gitlab verify`.

use serde_json::json;
use vk_gitlab::config::Config;
use vk_gitlab::verify::{Says, verify};

use crate::gitlab::VERIFY;
use crate::server::Reply;
use crate::world::World;

/// CFG-19
#[tokio::test]
async fn every_token_is_asked_about_and_its_expiry_told_while_the_daemon_runs() {
    let world = World::new().await;
    let daemon = world.start();
    world.gitlab.until("it asks", |state| state.open == 1).await;
    for runner in ["b", "c"] {
        world.token(runner, &format!("glrt-t1_{runner}_abcdefghijkl"));
    }
    world.configure("", &["ci", "b", "c"]);
    world.gitlab.change(|state| {
        state.seen.clear();
        let expires = json!({ "id": 8, "token_expires_at": "2031-01-02T03:04:05.000Z" });
        let answers = [
            Reply::json(200, &json!({ "id": 7, "token_expires_at": null })),
            Reply::json(200, &expires),
            Reply::status(403),
        ];
        state.verify.extend(answers);
    });
    let config = Config::read(&world.config_file()).unwrap().0;
    let verdicts = verify(&config, "r_abcdefghijkl").await.unwrap();
    let lines: Vec<String> = verdicts.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "ci: taken, runner 7, expires never",
            "b: taken, runner 8, expires 2031-01-02T03:04:05.000Z",
            "c: refused: GitLab does not know this token",
        ]
    );
    world.gitlab.look(|state| {
        assert_eq!(
            (state.seen.len(), state.count(VERIFY)),
            (3, 3),
            "and nothing else"
        );
    });
    daemon.stop().await;
    world.gitlab.change(|state| state.no_job = 1);
    daemon.ended().await;
}

/// CFG-19
#[tokio::test]
async fn a_gitlab_that_does_not_answer_says_nothing_of_the_token() {
    let world = World::new().await;
    world
        .gitlab
        .change(|state| state.verify.push_back(Reply::status(404)));
    let config = Config::read(&world.config_file()).unwrap().0;
    let verdicts = verify(&config, "r_abcdefghijkl").await.unwrap();
    assert_eq!(verdicts[0].says, Says::Unknown("status 404".to_owned()));
}
