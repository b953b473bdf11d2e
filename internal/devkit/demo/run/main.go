// Command run fills a server: it creates tenants, deploys the examples for them, triggers runs and
// executes them, until Ctrl-C. SERVO_SERVER is the address of the server (default 127.0.0.1:8081),
// SERVO_API_KEY is a platform key if that server requires keys.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"go.arco.dev/servo/client"
	"go.arco.dev/servo/internal/devkit/demo"
)

// patience is how long a call waits for a server that cannot be reached.
const patience = 5 * time.Second

func main() {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second Ctrl-C ends it at once
	err := run(ctx, stop, log)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// run returns when the context is done, or a worker has failed.
func run(ctx context.Context, stop context.CancelFunc, log *slog.Logger) (err error) {
	files := client.TLSFiles{CA: os.Getenv("SERVO_TLS_CA"), Cert: os.Getenv("SERVO_TLS_CERT"), Key: os.Getenv("SERVO_TLS_KEY")}
	encryption, err := client.TLSFromFiles(files)
	if err != nil {
		return err
	}
	server := cmp.Or(os.Getenv("SERVO_SERVER"), "127.0.0.1:8081")
	c, err := client.New(client.Options{
		Servers: []string{server}, APIKey: os.Getenv("SERVO_API_KEY"), TLS: encryption, UserAgent: "servo-seed", Logger: log, Patience: patience,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()

	s := demo.New(demo.Options{Client: c, Logger: log})
	if err := s.Fill(ctx); err != nil {
		return err
	}
	fmt.Printf("%s has tenants, configs and runs now; Ctrl-C ends what executes them\n", server)

	workers := demo.Workers(demo.WorkerOptions{Conn: c.Conn(), Name: "seed", Logger: log})
	errs := make([]error, len(workers))
	var ended sync.WaitGroup
	ended.Go(func() { s.Run(ctx) })
	for i, w := range workers {
		ended.Go(func() {
			defer stop() // one that fails ends the others
			errs[i] = w.Run(ctx)
		})
	}
	ended.Wait()
	return errors.Join(errs...)
}
