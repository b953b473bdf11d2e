package bench

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.arco.dev/servo"
)

// WorkerOptions are the options of a bench's worker.
type WorkerOptions struct {
	Server string
	Slots  int
	Logger *slog.Logger
}

// RunWorker is a worker whose tasks do nothing, so that what is measured is Servo.
func RunWorker(ctx context.Context, o WorkerOptions) error {
	w := servo.NewWorker(servo.WorkerOptions{Server: o.Server, Concurrency: o.Slots, Logger: o.Logger})
	type none struct{}
	servo.Asset(w, "noop", func(context.Context, *servo.Task, none) (none, error) { return none{}, nil })
	servo.Asset(w, "stamp", func(context.Context, *servo.Task, none) (float64, error) {
		return float64(time.Now().UnixMicro()) / 1e6, nil
	})
	servo.Asset(w, "scan", func(ctx context.Context, task *servo.Task, _ none) (none, error) {
		pages := make([]servo.Mapped, fanOutWidth)
		for i := range pages {
			pages[i] = servo.Mapped{Asset: "page/fetch", Partition: fmt.Sprintf("p%05d", i)}
		}
		_, err := task.FanOut(ctx, pages, servo.Barrier())
		return none{}, err
	})
	return w.Run(ctx)
}
