//! Threads that do the jobs of the engine, in the order in which they came.
//!
//! Some jobs come in thousands at once: a chain of handoffs that wait for each other, a flood of
//! files that are refused. They wait behind the others, so that a start or an outcome never stands
//! in line with them; one job in four is theirs, so that they are done however busy the daemon is.
//!
//! One job wakes one thread at the most. A channel's receiver behind a mutex would wake two: the one
//! that gets the job, and the next in line for the mutex, only to wait there. And it wakes the one
//! that worked last, whose memory is still at hand, rather than each in its turn.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::engine::event::Event;
use crate::engine::world::World;

pub type Job = Box<dyn FnOnce(&World) + Send>;

/// A few threads, which end once this is dropped.
pub struct Workers {
    queue: Arc<Queue<Job>>,
}

impl Workers {
    pub fn start(world: &Arc<World>, name: &str, threads: usize) -> std::io::Result<Self> {
        let queue: Arc<Queue<Job>> = Arc::new(Queue::new(threads));
        for n in 0..threads {
            let (queue, world) = (Arc::clone(&queue), Arc::clone(world));
            std::thread::Builder::new()
                .name(format!("{name}-{n}"))
                .spawn(move || {
                    while let Some(job) = queue.next(n) {
                        if catch_unwind(AssertUnwindSafe(|| job(&world))).is_err() {
                            world.tell(Event::Panicked);
                        }
                    }
                })?;
        }
        Ok(Self { queue })
    }

    pub fn run(&self, job: impl FnOnce(&World) + Send + 'static) {
        let job: Job = Box::new(job);
        self.run_all([job]);
    }

    /// Has a job done that others need not wait for.
    pub fn run_behind(&self, job: impl FnOnce(&World) + Send + 'static) {
        let job: Job = Box::new(job);
        self.queue.add(Line::Behind, [job]);
    }

    /// Has jobs done in this order. One thread is woken, and wakes the next while there is more to do:
    /// those that would find nothing sleep on.
    pub fn run_all(&self, jobs: impl IntoIterator<Item = Job>) {
        self.queue.add(Line::Front, jobs);
    }

    /// Has pairs of jobs done, `first` before `second`.
    pub fn run_pairs(&self, first: Vec<Job>, second: Vec<Job>) {
        let pairs = first.len().max(second.len());
        let (mut first, mut second) = (first.into_iter(), second.into_iter());
        let both = (0..pairs).flat_map(|_| [first.next(), second.next()]);
        self.run_all(both.flatten());
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// Where a job waits.
#[derive(Clone, Copy)]
enum Line {
    Front,
    Behind,
}

/// One job of so many is taken from those that wait behind.
const SHARE_BEHIND: usize = 4;

struct Queue<J> {
    state: Mutex<Jobs<J>>,
    /// One for each thread.
    bells: Vec<Condvar>,
}

struct Jobs<J> {
    front: VecDeque<J>,
    behind: VecDeque<J>,
    /// How many were taken.
    taken: usize,
    /// Threads with nothing to do, the one that worked last at the end.
    idle: Vec<usize>,
    closed: bool,
}

impl<J> Jobs<J> {
    fn len(&self) -> usize {
        self.front.len() + self.behind.len()
    }

    fn take(&mut self) -> Option<J> {
        self.taken = self.taken.wrapping_add(1);
        let (first, second) = if self.taken.is_multiple_of(SHARE_BEHIND) {
            (&mut self.behind, &mut self.front)
        } else {
            (&mut self.front, &mut self.behind)
        };
        first.pop_front().or_else(|| second.pop_front())
    }
}

impl<J> Queue<J> {
    fn new(threads: usize) -> Self {
        Self {
            state: Mutex::new(Jobs {
                front: VecDeque::new(),
                behind: VecDeque::new(),
                taken: 0,
                idle: Vec::new(),
                closed: false,
            }),
            bells: (0..threads).map(|_| Condvar::new()).collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Jobs<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, line: Line, more: impl IntoIterator<Item = J>) {
        let mut jobs = self.lock();
        let before = jobs.len();
        match line {
            Line::Front => jobs.front.extend(more),
            Line::Behind => jobs.behind.extend(more),
        }
        if jobs.len() > before {
            self.wake_one(jobs);
        }
    }

    /// No more jobs come; those that wait are still done.
    fn close(&self) {
        self.lock().closed = true;
        for bell in &self.bells {
            bell.notify_one();
        }
    }

    /// Wakes a thread, if there is one with nothing to do.
    fn wake_one(&self, mut jobs: MutexGuard<'_, Jobs<J>>) {
        let idle = jobs.idle.pop();
        drop(jobs);
        if let Some(bell) = idle.and_then(|n| self.bells.get(n)) {
            bell.notify_one();
        }
    }

    /// Waits, as thread `n`, for the next job; none when there will be no more.
    fn next(&self, n: usize) -> Option<J> {
        let mut jobs = self.lock();
        loop {
            match jobs.take() {
                Some(job) => {
                    if jobs.len() > 0 {
                        self.wake_one(jobs);
                    }
                    return Some(job);
                }
                None if jobs.closed => return None,
                None => {
                    jobs.idle.push(n);
                    let woken = self.bells[n].wait(jobs);
                    jobs = woken.unwrap_or_else(PoisonError::into_inner);
                    // It may have woken by itself.
                    jobs.idle.retain(|idle| *idle != n);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    #[test]
    fn what_waits_is_done_in_its_order_also_when_no_more_comes() {
        let queue = Queue::new(1);
        queue.add(Line::Front, [0]);
        queue.add(Line::Front, 1..=3);
        queue.close();
        let done: Vec<u32> = std::iter::from_fn(|| queue.next(0)).collect();
        assert_eq!(done, [0, 1, 2, 3]);
    }

    #[test]
    fn a_job_passes_those_behind_and_they_have_their_share() {
        let queue = Queue::new(1);
        queue.add(Line::Behind, 100..1_000);
        queue.add(Line::Front, 0..9);
        queue.close();
        let done: Vec<u32> = std::iter::from_fn(|| queue.next(0)).collect();
        assert_eq!(done[..13], [0, 1, 2, 100, 3, 4, 5, 101, 6, 7, 8, 102, 103]);
        assert_eq!(done.len(), 909);
    }

    /// Waits until so many threads have nothing to do.
    fn wait_idle(queue: &Queue<u32>, threads: usize) {
        let begin = Instant::now();
        while queue.lock().idle.len() < threads {
            assert!(begin.elapsed() < Duration::from_secs(30));
            std::thread::yield_now();
        }
    }

    #[test]
    fn every_job_is_done_once_and_the_thread_that_worked_last_is_woken() {
        let queue: Queue<u32> = Queue::new(3);
        let (tell, told) = channel();
        std::thread::scope(|scope| {
            for n in 0..3 {
                let (queue, tell) = (&queue, tell.clone());
                scope.spawn(move || {
                    while let Some(job) = queue.next(n) {
                        tell.send((n, job)).unwrap();
                    }
                });
            }
            wait_idle(&queue, 3);
            let mut workers = Vec::new();
            for job in 0..20 {
                queue.add(Line::Front, [job]);
                let (n, done) = told.recv_timeout(Duration::from_secs(30)).unwrap();
                assert_eq!(done, job);
                workers.push(n);
                wait_idle(&queue, 3);
            }
            assert_eq!(workers, [workers[0]; 20]);
            queue.add(Line::Front, 100..300);
            queue.add(Line::Behind, 300..400);
            let mut done: Vec<u32> = (0..300)
                .map(|_| told.recv_timeout(Duration::from_secs(30)).unwrap().1)
                .collect();
            done.sort_unstable();
            assert!(done.into_iter().eq(100..400));
            queue.close();
        });
    }
}
