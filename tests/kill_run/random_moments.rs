//! The program is killed at random moments.

use std::time::{Duration, Instant};

use crate::aftermath;
use crate::process::Process;
use crate::scene::Scene;

/// Repeatable chance (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// A hundred words, some of them thoughts, as fast as a shell can say them.
const TALK: &str = r#"
i=0
while [ $i -lt 100 ]; do
  i=$((i + 1))
  case $i in *7) say reasoning "{\"text\":\"hm$i \"}" ;; *) token "wort$i " ;; esac
done"#;

/// Kills so many runs, each a while after its start, and looks at what is left. Some die in the middle of their answer.
fn check_random_kills(begin: impl Fn() -> (Scene, Process), seed: u64, kills: usize) {
    let (_scene, calm) = begin();
    let began = Instant::now();
    assert_eq!(calm.end().code(), Some(0));
    let latest_micros = began.elapsed().as_micros() as u64 + 1;
    let (mut dice, mut interrupted) = (Dice(seed), 0);
    for _ in 0..kills {
        let (scene, mut run) = begin();
        let delay = Duration::from_micros(dice.below(latest_micros));
        std::thread::sleep(delay);
        run.kill();
        println!("killed after {delay:?}");
        let printed = run.end().lines;
        interrupted += usize::from(!printed.is_empty() && !aftermath::is_complete(&printed));
        aftermath::check(&scene, &printed);
    }
    assert!(interrupted > 0, "nobody died in the middle of an answer");
}

#[test]
fn twenty_kills_of_a_fast_agent_lose_nothing_that_was_printed() {
    let begin = || {
        let scene = Scene::with_agent(TALK);
        let run = scene.start();
        (scene, run)
    };
    check_random_kills(begin, 1, 20);
}

#[test]
fn twenty_kills_of_the_demo_lose_nothing_that_was_printed() {
    let begin = || {
        let scene = Scene::with_demo();
        let run = Process::start(scene.run_command(&["--json", "--pace-ms", "0"]));
        (scene, run)
    };
    check_random_kills(begin, 2, 20);
}
