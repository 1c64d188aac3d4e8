//! Runners, and runs as they are listed, shown and stopped.

use lastword::Options;
use lastword::run::{Config, Outlet, Producing, Prompt, Runner};
use serde_json::json;

use crate::house::House;

#[derive(Debug)]
struct Oracle;

impl Runner for Oracle {
    fn produce(&self, _: Prompt, _: Outlet) -> Producing {
        unreachable!("no turn asks it")
    }
}

#[test]
fn runners_are_listed_with_their_kind_and_one_default() {
    let config = r#"
        default_runner = "agent"
        [runners.agent]
        kind = "command"
        command = ["true"]
        [runners.gpt]
        kind = "openai"
        base_url = "http://127.0.0.1:9/v1"
        model = "m"
    "#;
    let runners = Config::parse(config).unwrap().runners.with("oracle", Oracle);
    let house = House::of(Options::default(), runners, |_| {});
    let listed = |name: &str, kind: &str, default: bool| json!({ "name": name, "kind": kind, "default": default });
    let expected = [
        listed("agent", "command", true),
        listed("demo", "demo", false),
        listed("gpt", "openai", false),
        listed("oracle", "custom", false),
    ];
    assert_eq!(house.get("/v1/runners").expect(200).json(), json!({ "runners": expected }));
}

#[test]
fn without_a_configuration_the_demo_is_the_default_runner() {
    let expected = json!({ "runners": [{ "name": "demo", "kind": "demo", "default": true }] });
    assert_eq!(House::new().get("/v1/runners").expect(200).json(), expected);
}
