package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"go.arco.dev/servo/internal/store/internal/db"
)

// MaxNotice is how long a notice may be, in bytes: PostgreSQL refuses 8000.
const MaxNotice = 7_900

// Notify sends a notice to every listener. A notice may be lost: it is only a hint.
func (s *Store) Notify(ctx context.Context, notice string) error {
	return db.New(s.pool).Notify(ctx, notice)
}

// Times of a listener. A broken connection delivers nothing and no error, so the listener pings the
// server after a time without notices.
const (
	silence       = 30 * time.Second
	silenceAnswer = 10 * time.Second
)

// Listen calls receive with every notice, on a connection of its own, until the context ends or the
// connection breaks. It calls listening once all later notices will be received. The URL must lead
// to PostgreSQL itself: behind a pooler in transaction mode no notice is received.
func Listen(ctx context.Context, url string, listening func(), receive func(notice string)) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing) // it may be broken
	}()
	// By the simple protocol: the text has no parameters, and nothing is left prepared.
	if _, err := conn.Exec(ctx, `LISTEN servo_wake`, pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	listening()
	for {
		notice, err := nextNotice(ctx, conn)
		if err != nil {
			return fmt.Errorf("listen: %w", err)
		}
		if notice != "" {
			receive(notice)
		}
	}
}

// nextNotice waits for a notice, "" if none came for a while and the connection is alive.
func nextNotice(ctx context.Context, conn *pgx.Conn) (string, error) {
	waiting, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	notice, err := conn.WaitForNotification(waiting)
	switch {
	case err == nil:
		return notice.Payload, nil
	case ctx.Err() != nil:
		return "", ctx.Err()
	case waiting.Err() == nil:
		return "", err
	}
	asking, done := context.WithTimeout(ctx, silenceAnswer)
	defer done()
	return "", conn.Ping(asking)
}
