package daemon_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/daemon"
	"go.arco.dev/servo/internal/devkit/servotest/certs"
)

func TestReadDatabaseTLS(t *testing.T) {
	t.Parallel()
	ca := certs.New(t).File
	for url, want := range map[string]daemon.DatabaseTLS{
		"postgres://servo@localhost/servo":                                               {},
		"postgres://servo@127.0.0.1/servo":                                               {},
		"postgres:///servo?host=/run/postgresql&user=servo":                              {},
		"postgres://servo@db/servo":                                                      {Plain: []string{"db"}, Unverified: []string{"db"}},
		"postgres://servo@db/servo?sslmode=disable":                                      {Plain: []string{"db"}},
		"postgres://servo@db/servo?sslmode=require":                                      {Unverified: []string{"db"}},
		"postgres://servo@db/servo?sslmode=verify-ca&sslrootcert=" + ca:                  {Verified: []string{"db"}},
		"postgres://servo@db/servo?sslmode=verify-full&sslrootcert=" + ca:                {Verified: []string{"db"}},
		"postgres://servo@127.0.0.1,standby/servo?sslmode=disable":                       {Plain: []string{"standby"}},
		"postgres://servo@one:5432,two:5433/servo?sslmode=verify-full&sslrootcert=" + ca: {Verified: []string{"one", "two"}},
	} {
		read, err := daemon.ReadDatabaseTLS(url)
		require.NoError(t, err, url)
		require.Equal(t, want, read, url)
	}
}
