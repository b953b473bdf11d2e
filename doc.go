// Package servo is the SDK for authors of assets: it registers Go functions as assets and runs them
// in a worker.
//
//	func main() {
//		w := servo.NewWorker(servo.WorkerOptions{Server: "127.0.0.1:8081", Concurrency: 8})
//		servo.Asset(w, "gold/revenue", revenue)
//		servo.Main(w)
//	}
//
//	func revenue(ctx context.Context, task *servo.Task, p Params) (Revenue, error) {
//		orders, err := servo.Upstream[[]Order](ctx, task, "bronze/orders")
//		if err != nil {
//			return Revenue{}, err
//		}
//		…
//	}
//
// The deployed manifest declares the upstreams, the pool, the timeout and the retries of an asset;
// this package has its code only. The parameters of a run are decoded into the function's last
// argument. The result is encoded as JSON and stored with the task; downstream assets read it with
// [Upstream].
//
// # Results and errors
//
//   - A function that returns no error completes its task. [Task.Partial] marks the result as partial.
//   - An error fails the attempt. Its code decides whether the task is retried: see [Fail] and [Error].
//     A panic is an error with the code [UserCodeException].
//   - [Yield] ends the attempt without failure; the next attempt continues from the cursor.
//
// The server decides which task runs next and whether a failed task is retried.
//
// # Context and idempotency
//
// The function's context ends when the task should end. [context.Cause] returns the reason:
// [ErrCancelled], [ErrInterrupted], [ErrTimedOut] or [ErrLeaseLost].
//
// A function can run more than once for the same task, for example after the loss of a worker. Make
// its writes idempotent: the second execution must write the same data to the same place. [Task.Token]
// is a fencing token with which a store can refuse the writes of a replaced attempt.
//
// # Long tasks
//
// [Task.Advance] stores a cursor, from which the next attempt continues. [Task.FanOut] adds tasks to
// the run. [Task.Progress] and [Task.Log] report to the operators who watch the run.
//
// # Tests and push pools
//
// [NewTestTask] calls a function in a test, without a server. [NewPushHandler] serves the tasks of a
// push pool over HTTP instead of claiming them.
package servo
