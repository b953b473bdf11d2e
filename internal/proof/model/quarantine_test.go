package model

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func allQuarantineRules() (r QuarantineRules) {
	v := reflect.ValueOf(&r).Elem()
	for i := range v.NumField() {
		v.Field(i).SetBool(true)
	}
	return r
}

func TestQuarantine(t *testing.T) {
	t.Parallel()
	r := ExploreQuarantine(allQuarantineRules())
	require.Empty(t, r.Broken, "%v", r.Trace)
	require.Greater(t, r.States, 150, "something that used to happen happens no more")
	t.Logf("%d states", r.States)
}

func TestEveryQuarantineRuleIsNeeded(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	rules := reflect.TypeFor[QuarantineRules]()
	for i := range rules.NumField() {
		name := rules.Field(i).Name
		t.Run("without "+name, func(t *testing.T) {
			t.Parallel()
			without := allQuarantineRules()
			reflect.ValueOf(&without).Elem().FieldByName(name).SetBool(false)
			r := ExploreQuarantine(without)
			require.NotEmpty(t, r.Broken)
			for n, line := range r.Trace {
				t.Logf("%3d  %s", n+1, line)
			}
			found := fmt.Sprintf("%s: %d steps: %s\n", name, len(r.Trace), r.Broken)
			require.True(t, strings.Contains(string(doc), found), "the package documentation does not list %s", found)
		})
	}
}
