//! How the writer lets writes travel together: one transaction for several turns costs little more than for one.
//!
//! Alone, a write is committed at once. While many turns are open in this process the writer waits a moment before it commits, so
//! that those of the others come along, and again while less than half of them did, a few times; nobody notices some milliseconds, and a
//! commit is what a busy machine spends most on. PostgreSQL knows the same as `commit_delay` and `commit_siblings`.

use tokio::sync::mpsc;

use super::writer::{Job, Work};
use crate::limits;

/// The turns that are open as far as the writer has seen, and whether it was worth while to wait for them.
#[derive(Default)]
pub(super) struct Crowd {
    /// Accepted and not appended. Turns that died are counted until the writer has waited in vain for long.
    open: usize,
    /// How often in a row nobody came.
    vain: u32,
    /// Groups that are committed at once before it waits again: open turns that wait for their models write nothing.
    hasty: u32,
}

impl Crowd {
    /// Lets those who are on their way join the group.
    pub(super) fn gather(&mut self, group: &mut Vec<Job>, jobs: &mut mpsc::Receiver<Job>) {
        group.iter().for_each(|job| self.count(job));
        let came = group.len();
        if self.open < limits::STORE_CROWD || came >= self.open {
            return;
        }
        if self.hasty > 0 {
            self.hasty -= 1;
            return;
        }
        for _ in 0..limits::STORE_GATHERINGS {
            std::thread::sleep(limits::STORE_GATHER);
            while group.len() < limits::STORE_GROUP {
                let Ok(job) = jobs.try_recv() else { break };
                self.count(&job);
                group.push(job);
            }
            if 2 * group.len() >= self.open {
                break;
            }
        }
        if group.len() > came {
            self.vain = 0;
            return;
        }
        if self.vain < limits::STORE_VAIN {
            self.vain += 1;
        } else {
            self.open /= 2;
        }
        self.hasty = 1 << self.vain;
    }

    fn count(&mut self, job: &Job) {
        match job.work {
            Work::Accept { .. } => self.open += 1,
            Work::Append(_) => self.open = self.open.saturating_sub(1),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

    use segue_engine::{ids::ConversationId, time::Timestamp};
    use tokio::sync::oneshot;

    use super::*;

    fn accept() -> Job {
        let work =
            Work::Accept { id: ConversationId::from("c"), key: None, at: Timestamp::default(), packed: Vec::new() };
        Job { work, answer: oneshot::channel().0 }
    }

    /// Nothing is waited for here but the one pause of the crowd, so what is queued behind the first write shows whether it was made.
    #[test]
    fn writes_wait_for_company_only_in_a_crowd_and_not_for_ever() {
        let (send, mut jobs) = mpsc::channel(limits::STORE_QUEUE);
        let mut crowd = Crowd::default();
        let mut next = |crowd: &mut Crowd, queued: usize| {
            (0..queued).for_each(|_| send.try_send(accept()).unwrap());
            let mut group = vec![jobs.try_recv().unwrap()];
            crowd.gather(&mut group, &mut jobs);
            group.len()
        };
        assert_eq!(next(&mut crowd, 2), 1, "one turn is open: it is committed at once");
        assert_eq!(next(&mut crowd, 0), 1);
        for _ in 3..limits::STORE_CROWD {
            next(&mut crowd, 1);
        }
        assert_eq!(next(&mut crowd, 3), 3, "in a crowd all that came are one group");
        let open = crowd.open;
        assert_eq!(next(&mut crowd, 1), 1, "nobody came");
        assert_eq!(next(&mut crowd, 2), 1, "so the next two are committed at once");
        assert_eq!(next(&mut crowd, 0), 1);
        assert_eq!(next(&mut crowd, 2), 2, "then it is tried again");
        assert_eq!((crowd.vain, crowd.open), (0, open + 5));
        while crowd.vain < limits::STORE_VAIN {
            crowd.hasty = 0;
            next(&mut crowd, 1);
        }
        (crowd.hasty, crowd.open) = (0, 40);
        next(&mut crowd, 1);
        assert_eq!(crowd.open, 20, "nobody came for long, so there are fewer than it seemed");
        assert_eq!(crowd.hasty, 1 << limits::STORE_VAIN);
    }
}
