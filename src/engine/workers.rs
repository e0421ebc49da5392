//! Threads that do the jobs of the engine, in the order in which they came.
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

/// How many quick jobs a thread takes at the most.
const TOGETHER: usize = 4;

/// A few threads, which end once this is dropped.
pub struct Workers {
    queue: Arc<Queue<Job>>,
}

impl Workers {
    pub fn start(world: &Arc<World>, name: &str, threads: usize) -> std::io::Result<Self> {
        let queue = Arc::new(Queue::new(threads));
        for n in 0..threads {
            let (queue, world) = (Arc::clone(&queue), Arc::clone(world));
            std::thread::Builder::new()
                .name(format!("{name}-{n}"))
                .spawn(move || {
                    let mut taken: Vec<Job> = Vec::new();
                    while queue.next(n, &mut taken) {
                        for job in taken.drain(..) {
                            if catch_unwind(AssertUnwindSafe(|| job(&world))).is_err() {
                                world.tell(Event::Panicked);
                            }
                        }
                    }
                })?;
        }
        Ok(Self { queue })
    }

    pub fn run(&self, job: impl FnOnce(&World) + Send + 'static) {
        let job: Job = Box::new(job);
        self.queue.add([(job, false)]);
    }

    /// Has pairs of jobs done, `first` before `second`. One thread is woken, and wakes the next while
    /// there is more to do: those that would find nothing sleep on.
    pub fn run_pairs(&self, first: Vec<Job>, second: Vec<Job>) {
        let pairs = first.len().max(second.len());
        let (mut first, mut second) = (first.into_iter(), second.into_iter());
        let both = (0..pairs).flat_map(|_| [first.next(), second.next()]);
        self.queue.add(both.flatten().map(|job| (job, false)));
    }

    /// Has jobs done that take microseconds each: waking a thread for every one of them would cost as
    /// much as they do, so a thread takes several.
    pub fn run_quick(&self, quick: Vec<Job>) {
        self.queue.add(together(quick));
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// Ties jobs together that one thread is to take.
fn together<J>(jobs: Vec<J>) -> impl Iterator<Item = (J, bool)> {
    let count = jobs.len();
    let tie = move |(at, job)| (job, at + 1 < count && (at + 1) % TOGETHER != 0);
    jobs.into_iter().enumerate().map(tie)
}

struct Queue<J> {
    state: Mutex<Jobs<J>>,
    /// One for each thread.
    bells: Vec<Condvar>,
}

struct Jobs<J> {
    /// Each with whether whoever takes it takes the next one too.
    waiting: VecDeque<(J, bool)>,
    /// Threads with nothing to do, the one that worked last at the end.
    idle: Vec<usize>,
    closed: bool,
}

impl<J> Queue<J> {
    fn new(threads: usize) -> Self {
        Self {
            state: Mutex::new(Jobs {
                waiting: VecDeque::new(),
                idle: Vec::new(),
                closed: false,
            }),
            bells: (0..threads).map(|_| Condvar::new()).collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Jobs<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, more: impl IntoIterator<Item = (J, bool)>) {
        let mut jobs = self.lock();
        let before = jobs.waiting.len();
        jobs.waiting.extend(more);
        if jobs.waiting.len() > before {
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

    /// Waits, as thread `n`, for the next job, and those that go with it; `false` when there will
    /// be none.
    fn next(&self, n: usize, taken: &mut Vec<J>) -> bool {
        let mut jobs = self.lock();
        loop {
            match jobs.waiting.pop_front() {
                Some((job, with_next)) => {
                    taken.push(job);
                    if with_next {
                        continue;
                    }
                    if !jobs.waiting.is_empty() {
                        self.wake_one(jobs);
                    }
                    return true;
                }
                None if !taken.is_empty() => return true,
                None if jobs.closed => return false,
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
    fn quick_jobs_are_taken_a_few_at_a_time_and_others_alone() {
        let queue = Queue::new(1);
        queue.add([(0, false)]);
        queue.add(together((1..=6).collect()));
        queue.add([(7, false)]);
        queue.close();
        let mut rounds = Vec::new();
        loop {
            let mut taken = Vec::new();
            if !queue.next(0, &mut taken) {
                break;
            }
            rounds.push(taken);
        }
        assert_eq!(rounds, [vec![0], vec![1, 2, 3, 4], vec![5, 6], vec![7]]);
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
                    let mut taken = Vec::new();
                    while queue.next(n, &mut taken) {
                        for job in taken.drain(..) {
                            tell.send((n, job)).unwrap();
                        }
                    }
                });
            }
            wait_idle(&queue, 3);
            let mut workers = Vec::new();
            for job in 0..20 {
                queue.add([(job, false)]);
                let (n, done) = told.recv_timeout(Duration::from_secs(30)).unwrap();
                assert_eq!(done, job);
                workers.push(n);
                wait_idle(&queue, 3);
            }
            assert_eq!(workers, [workers[0]; 20]);
            queue.add((100..400).map(|job| (job, job % 3 == 0)));
            let mut done: Vec<u32> = (0..300)
                .map(|_| told.recv_timeout(Duration::from_secs(30)).unwrap().1)
                .collect();
            done.sort_unstable();
            assert!(done.into_iter().eq(100..400));
            queue.close();
        });
    }
}
