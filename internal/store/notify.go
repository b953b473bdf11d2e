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

// Notify tells every listener something. It is a hint that may be lost: nobody may depend
// on it.
func (s *Store) Notify(ctx context.Context, notice string) error {
	return db.New(s.pool).Notify(ctx, notice)
}

// Times of a listener. A connection that was cut off without a word stays silent for ever,
// so silence is asked whether it is one.
const (
	silence       = 30 * time.Second
	silenceAnswer = 10 * time.Second
)

// Listen calls hear with every notice that comes, on a connection of its own, until the
// context ends or the connection breaks. Listening is called once it is certain that what
// is told from now on is heard. The URL must lead to PostgreSQL itself: behind a pooler
// that hands connections around nothing would be heard.
func Listen(ctx context.Context, url string, listening func(), hear func(notice string)) error {
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
			hear(notice)
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
