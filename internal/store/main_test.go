package store_test

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/store/internal/db"
)

// executed has the name of every query that a test of this package has executed: the
// driver reports it when the database has answered without an error.
var executed = struct {
	sync.Mutex
	names map[string]bool
}{names: map[string]bool{}}

// TestMain fails the package when a query in queries/ was executed by no test. A run of
// chosen tests is not asked.
func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if missing := unexecuted(queryNames(), executed.names); code == 0 && wholePackage() && len(missing) > 0 {
		fmt.Fprintln(os.Stderr, "queries that no test has executed:", strings.Join(missing, ", "))
		code = 1
	}
	os.Exit(code)
}

func wholePackage() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list", "test.fuzz"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return false
		}
	}
	return true
}

// queryNames are the queries that sqlc made methods of.
func queryNames() []string {
	queries := reflect.TypeFor[*db.Queries]()
	var names []string
	for i := range queries.NumMethod() {
		if name := queries.Method(i).Name; name != "WithTx" {
			names = append(names, name)
		}
	}
	return names
}

func unexecuted(all []string, executed map[string]bool) []string {
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return executed[name] })
}

// queryName is what sqlc wrote into the first line of a statement, "" for other SQL.
func queryName(sql string) string {
	name, found := strings.CutPrefix(sql, "-- name: ")
	if !found {
		return ""
	}
	name, _, _ = strings.Cut(name, " ")
	return name
}

func record(sql string, _ []any) {
	executed.Lock()
	defer executed.Unlock()
	executed.names[queryName(sql)] = true
}

func TestQueriesAreAccountedFor(t *testing.T) {
	t.Parallel()
	all := queryNames()
	require.Contains(t, all, "EndTasks")
	require.NotContains(t, all, "WithTx")

	require.Equal(t, []string{"EndTasks"}, unexecuted([]string{"Clock", "EndTasks"}, map[string]bool{"Clock": true}))
	require.Equal(t, "Clock", queryName("-- name: Clock :one\nSELECT 1"))
	require.Empty(t, queryName("SELECT 1 -- name: Clock"))

	w := newWorld(t)
	w.engine(t, func(tx *Tx) { w.now = must(tx.Clock(t.Context()))(t) })
	executed.Lock()
	defer executed.Unlock()
	require.True(t, executed.names["Clock"], "the driver reports what was executed")
}
