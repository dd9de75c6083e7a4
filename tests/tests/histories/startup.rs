//! Servers that start while a server that they need stops and restarts.

use tokio::time::{self, Instant};

use crate::test_cluster::{ServerId, TestCluster};

/// Number of different times at which the meta-server dies during a start.
const MOMENTS: u32 = 12;

#[tokio::test]
async fn servers_that_start_wait_for_a_meta_server_that_dies_meanwhile() {
    let mut ground = TestCluster::start(1, 1).await;
    let those = [ServerId::Brick(1), ServerId::Peer(1)];
    let begin = |ground: &mut TestCluster| {
        for server in those {
            ground.kill(server);
            ground.launch(server);
        }
        Instant::now()
    };
    let began = begin(&mut ground);
    for server in those {
        ground.wait_ready(server).await.unwrap();
    }
    let length = began.elapsed();
    for moment in 0..MOMENTS {
        begin(&mut ground);
        time::sleep(length * moment / MOMENTS).await;
        ground.kill(ServerId::Meta);
        ground.launch(ServerId::Meta);
        for server in those {
            ground.wait_ready(server).await.unwrap();
        }
    }
}
