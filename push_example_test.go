package servo_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.arco.dev/servo"
)

// A push worker is an HTTP server: Servo posts the tasks of its pool to it. It accepts only
// what is signed with the keys in SERVO_PUSH_KEYS.
func ExampleNewPushHandler() {
	main := func() {
		w := servo.NewWorker(servo.WorkerOptions{Concurrency: 8, Logger: slog.Default()})
		servo.Asset(w, "gold/revenue", func(context.Context, *servo.Task, servo.None) (Revenue, error) {
			return Revenue{Region: "eu", Total: 12.5}, nil
		})
		handler, err := servo.NewPushHandler(w, servo.PushOptions{})
		if err != nil {
			slog.Error("the worker cannot be made", "error", err)
			os.Exit(1)
		}
		server := &http.Server{Addr: ":9000", Handler: handler, ReadHeaderTimeout: 10 * time.Second}

		stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer cancel()
		go func() {
			<-stop.Done()
			_ = handler.Shutdown(context.Background()) // first: tasks end and are reported
			_ = server.Shutdown(context.Background())
		}()
		if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			slog.Error("the worker failed", "error", err)
		}
	}
	_ = main
}
