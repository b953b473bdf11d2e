package asset_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/asset"
)

// parse reads a manifest that must be good.
func parse(t *testing.T, yaml string) *asset.Manifest {
	t.Helper()
	m, err := asset.Parse([]byte(yaml), "servo.yaml")
	require.NoError(t, err)
	return m
}

func readGood(t *testing.T, name string) *asset.Manifest {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "good", name))
	require.NoError(t, err)
	m, err := asset.Parse(data, name)
	require.NoError(t, err)
	return m
}

func TestParse(t *testing.T) {
	t.Parallel()

	t.Run("missing fields get their defaults", func(t *testing.T) {
		t.Parallel()
		m := readGood(t, "full.yaml")
		a, ok := m.Asset("gold/margin")
		require.True(t, ok)
		require.Equal(t, asset.Asset{
			Key: "gold/margin", Upstream: []string{"gold/revenue_daily"}, Pool: "default",
			Timeout: asset.Duration(time.Hour), Go: &asset.Go{Handler: "gold/margin"},
		}, a)
		p, ok := m.Pipeline("all")
		require.True(t, ok)
		require.Equal(t, asset.Pipeline{Name: "all", Select: []string{"*"}, Priority: 5}, p)
	})

	t.Run("a declared schema is a check", func(t *testing.T) {
		t.Parallel()
		for checks, want := range map[string]int{"": 1, "checks: [{type: schema, allow_extra: true}]": 1, "checks: [{type: row_count, min: 1}]": 2} {
			m := parse(t, wrap("go: {}\noutput: {format: csv, schema: [{name: a, type: string}]}\n"+checks))
			require.Len(t, m.Assets[0].Checks, want, checks)
		}
	})

	t.Run("given fields are read", func(t *testing.T) {
		t.Parallel()
		m := readGood(t, "full.yaml")
		orders, ok := m.Asset("bronze/orders")
		require.True(t, ok)
		require.Equal(t, "eu-small", orders.Pool)
		require.Equal(t, 30*time.Minute, orders.Timeout.Std())
		require.Equal(t, asset.KindExec, orders.Kind())
		require.Equal(t, []string{"python", "-m", "orders", "--since", "2026-01-01", ""}, orders.Exec.Command)
		require.Equal(t, map[string]string{"REGION": "eu", "EMPTY": ""}, orders.Exec.Env)
		require.Equal(t, &asset.Retry{
			MaxAttempts: 5, InitialDelay: asset.Duration(time.Minute), MaxDelay: asset.Duration(time.Hour), Multiplier: 2.5, Jitter: 0.2,
			RetryOn: []string{"SHOP_BUSY", "USER_CODE_EXCEPTION"}, NoRetryOn: []string{}, TimeoutGrowth: 1.5,
		}, orders.Retry)
		rates, ok := m.Asset("bronze/rates")
		require.True(t, ok)
		require.Equal(t, asset.KindHTTP, rates.Kind())
		require.Equal(t, map[string]string{"Accept": "application/json"}, rates.HTTP.Headers)
		revenue, ok := m.Asset("gold/revenue_daily")
		require.True(t, ok)
		require.Equal(t, orders.Retry, revenue.Retry, "an alias stands for its value")
		p, ok := m.Pipeline("revenue")
		require.True(t, ok)
		require.Equal(t, []string{"+gold/revenue_daily", "bronze/*", "owner:data-platform", "tag:daily"}, p.Select)
		require.Equal(t, 8, p.Priority)
		require.Equal(t, "6h", p.MaxExecution.String())
		require.Equal(t, `{"a":[true,null],"b":1}`, string(p.Parameters[4].Default))
		require.Equal(t, `["2026-01-01"]`, string(p.Parameters[1].Default), "an unquoted date is the text that was written")
		_, ok = m.Asset("gold/nothing")
		require.False(t, ok)
	})

	t.Run("a file without an ending is JSON if it starts with a brace", func(t *testing.T) {
		t.Parallel()
		const json = ` {"version":1,"assets":[{"key":"a/b","go":{}}]}`
		const yaml = "version: 1\nassets: [{key: a/b, go: {}}]"
		for _, text := range []string{json, yaml} {
			m, err := asset.Parse([]byte(text), "-")
			require.NoError(t, err)
			require.Len(t, m.Assets, 1)
		}
		_, err := asset.Parse([]byte(yaml), "servo.json")
		require.True(t, fault.Is(err, fault.InvalidManifest))
	})
}

// wrap makes the smallest manifest around one asset's fields.
func wrap(fields string) string {
	return "version: 1\nassets:\n  - key: a/b\n    " + strings.ReplaceAll(fields, "\n", "\n    ") + "\n"
}

// pipe makes the smallest manifest around one pipeline's fields.
func pipe(fields string) string {
	return "version: 1\nassets: [{key: a/b, go: {}, tags: [daily], owners: [ann]}]\npipelines:\n  - name: p\n    " + strings.ReplaceAll(fields, "\n", "\n    ") + "\n"
}

func long(n int) string { return strings.Repeat("x", n) }

// bad are manifests with one mistake each. Where inSchema is set, the published schema
// must refuse them too; the other mistakes are beyond a schema.
var bad = map[string]struct {
	yaml, field, message string
	inSchema             bool
}{
	"no version":                  {"assets: [{key: a/b, go: {}}]", "version", "is missing", true},
	"another version":             {"version: 2\nassets: [{key: a/b, go: {}}]", "version", "is 2, this build reads version 1", true},
	"a version as text":           {"version: '1'\nassets: [{key: a/b, go: {}}]", "version", "must be a whole number, is a string", true},
	"no assets":                   {"version: 1", "assets", "is missing", true},
	"an empty list":               {"version: 1\nassets: []", "assets", "the manifest has no assets", true},
	"assets as an object":         {"version: 1\nassets: {a/b: {go: {}}}", "assets", "must be a list, is an object", true},
	"a list at the top":           {"- version", "", "must be an object, is a list", true},
	"an unknown field":            {"version: 1\nassests: []\nassets: [{key: a/b, go: {}}]", "assests", "unknown field; did you mean assets?", true},
	"an unknown asset field":      {wrap("go: {}\ntimout: 1h"), "assets[a/b].timout", "unknown field; did you mean timeout?", true},
	"an asset without key":        {"version: 1\nassets: [{go: {}}]", "assets[0].key", "is missing", true},
	"an asset that is text":       {"version: 1\nassets: [a/b]", "assets[0]", "must be an object, is a string", true},
	"code that is text":           {wrap("exec: ls"), "assets[a/b].exec", "must be an object, is a string", true},
	"a key with capitals":         {"version: 1\nassets: [{key: Gold/B, go: {}}]", "assets[0].key", `"Gold/B" is not a valid key`, true},
	"a key of one part":           {"version: 1\nassets: [{key: gold, go: {}}]", "assets[0].key", "is not a valid key", true},
	"a key of three parts":        {"version: 1\nassets: [{key: a/b/c, go: {}}]", "assets[0].key", "is not a valid key", true},
	"a key with a newline":        {"version: 1\nassets: [{key: \"a/b\\n\", go: {}}]", "assets[0].key", `"a/b\n" is not a valid key`, true},
	"a long key":                  {"version: 1\nassets: [{key: a/" + long(101) + ", go: {}}]", "assets[0].key", "is not a valid key", true},
	"a null":                      {wrap("go: {}\nupstream:"), "assets[a/b].upstream", "must be a list, is null", true},
	"a number for text":           {wrap("go: {}\ndescription: 5"), "assets[a/b].description", "must be a string, is a number", true},
	"a long description":          {wrap("go: {}\ndescription: " + long(4097)), "assets[a/b].description", "has 4097 characters", true},
	"NUL in text":                 {wrap("go: {}\ndescription: \"a\\0\""), "assets[a/b].description", "NUL", true},
	"duplicate assets":            {"version: 1\nassets: [{key: a/b, go: {}}, {key: a/b, go: {}}]", "assets[1].key", `duplicate name "a/b", first used by assets[0]`, false},
	"an unknown upstream":         {"version: 1\nassets: [{key: gold/orders, go: {}}, {key: gold/x, go: {}, upstream: [gold/order]}]", "assets[gold/x].upstream[0]", "unknown asset gold/order; did you mean gold/orders?", false},
	"a repeated upstream":         {"version: 1\nassets: [{key: a/a, go: {}}, {key: a/x, go: {}, upstream: [a/a, a/a]}]", "assets[a/x].upstream[1]", "a/a is listed twice", true},
	"itself as upstream":          {wrap("go: {}\nupstream: [a/b]"), "assets[a/b].upstream[0]", "cycle: a/b names itself", false},
	"no code":                     {wrap("pool: p"), "assets[a/b]", "has no code", true},
	"two kinds of code":           {wrap("go: {}\nexec: {command: [a]}"), "assets[a/b]", "more than one kind of code: exec, go", true},
	"a bad pool":                  {wrap("go: {}\npool: My Pool"), "assets[a/b].pool", "is not a valid pool name", true},
	"a timeout without unit":      {wrap("go: {}\ntimeout: 3600"), "assets[a/b].timeout", "must be a duration, is a number", true},
	"a timeout with a sign":       {wrap("go: {}\ntimeout: -1h"), "assets[a/b].timeout", "is not a duration", true},
	"a timeout of zero":           {wrap("go: {}\ntimeout: 0s"), "assets[a/b].timeout", "is 0s, must be 1s to 24h", false},
	"a short timeout":             {wrap("go: {}\ntimeout: 999ms"), "assets[a/b].timeout", "is 999ms, must be 1s to 24h", false},
	"a long timeout":              {wrap("go: {}\ntimeout: 25h"), "assets[a/b].timeout", "is 25h, must be 1s to 24h", false},
	"a timeout of centuries":      {wrap("go: {}\ntimeout: 999999999999h"), "assets[a/b].timeout", "too long a duration", false},
	"a bad tag":                   {wrap("go: {}\ntags: [A]"), "assets[a/b].tags[0]", `"A" is not a valid tag`, true},
	"a repeated tag":              {wrap("go: {}\ntags: [a, a]"), "assets[a/b].tags[1]", "listed twice", true},
	"a number as tag":             {wrap("go: {}\ntags: [1]"), "assets[a/b].tags[0]", "must be a string, is a number", true},
	"a bad owner":                 {wrap("go: {}\nowners: ['@']"), "assets[a/b].owners[0]", "is not a valid owner", true},
	"no command":                  {wrap("exec: {}"), "assets[a/b].exec.command", "is missing", true},
	"an empty command":            {wrap("exec: {command: []}"), "assets[a/b].exec.command", "is empty", true},
	"an empty program":            {wrap("exec: {command: ['']}"), "assets[a/b].exec.command[0]", "is empty", true},
	"a command as text":           {wrap("exec: {command: ls -l}"), "assets[a/b].exec.command", "must be a list, is a string", true},
	"a number as argument":        {wrap("exec: {command: [sleep, 5]}"), "assets[a/b].exec.command[1]", "must be a string, is a number", true},
	"a number in env":             {wrap("exec: {command: [a], env: {PORT: 80}}"), "assets[a/b].exec.env.PORT", "must be a string, is a number", true},
	"a bad variable":              {wrap("exec: {command: [a], env: {A-B: x}}"), "assets[a/b].exec.env.A-B", "is not a valid variable name", true},
	"a reserved variable":         {wrap("exec: {command: [a], env: {SERVO_RUN: x}}"), "assets[a/b].exec.env.SERVO_RUN", "reserved", true},
	"no URL":                      {wrap("http: {method: GET}"), "assets[a/b].http.url", "is missing", true},
	"a relative URL":              {wrap("http: {url: /build}"), "assets[a/b].http.url", "not an http or https URL", true},
	"a file URL":                  {wrap("http: {url: 'file:///etc/passwd'}"), "assets[a/b].http.url", "not an http or https URL", true},
	"a URL with a password":       {wrap("http: {url: 'https://u:p@example.com/'}"), "assets[a/b].http.url", "user name or password", false},
	"a URL with a fragment":       {wrap("http: {url: 'https://example.com/#a'}"), "assets[a/b].http.url", "fragment", false},
	"a bad method":                {wrap("http: {url: 'https://example.com', method: get}"), "assets[a/b].http.method", `"get" is not a supported method`, true},
	"a bad header":                {wrap("http: {url: 'https://example.com', headers: {'a b': c}}"), `assets[a/b].http.headers["a b"]`, "is not a valid header name", true},
	"a header of two lines":       {wrap("http: {url: 'https://example.com', headers: {a: \"b\\nc\"}}"), "assets[a/b].http.headers.a", "control character", true},
	"a header twice":              {wrap("http: {url: 'https://example.com', headers: {A: b, a: c}}"), "assets[a/b].http.headers.a", "duplicate", false},
	"a transport header":          {wrap("http: {url: 'https://example.com', headers: {host: b}}"), "assets[a/b].http.headers.host", "set by the transport", false},
	"a bad handler":               {wrap("go: {handler: 'a b'}"), "assets[a/b].go.handler", "is not a valid handler name", true},
	"an output without format":    {wrap("go: {}\noutput: {retain: 3}"), "assets[a/b].output.format", "is missing", true},
	"an unknown format":           {wrap("go: {}\noutput: {format: orc}"), "assets[a/b].output.format", `"orc" is not a format`, true},
	"an unknown output field":     {wrap("go: {}\noutput: {format: csv, shema: []}"), "assets[a/b].output.shema", "did you mean schema?", true},
	"a column of no type":         {wrap("go: {}\noutput: {format: csv, schema: [{name: a, type: varchar}]}"), "assets[a/b].output.schema[0].type", `"varchar" is not a column type`, true},
	"a column twice":              {wrap("go: {}\noutput: {format: csv, schema: [{name: a, type: string}, {name: a, type: date}]}"), "assets[a/b].output.schema[1].name", "listed twice", false},
	"files with a schema":         {wrap("go: {}\noutput: {format: files, schema: [{name: a, type: string}]}"), "assets[a/b].output.schema", "format files has no columns", false},
	"an unknown check":            {wrap("go: {}\noutput: {format: csv}\nchecks: [{type: not_nul}]"), "assets[a/b].checks[0].type", `"not_nul" is not a type of check`, true},
	"a check without output":      {wrap("go: {}\nchecks: [{type: row_count, min: 1}]"), "assets[a/b].checks[0]", "checks the output, and the asset has none", false},
	"a check field of another":    {wrap("go: {}\noutput: {format: csv}\nchecks: [{type: row_count, min: 1, pattern: a}]"), "assets[a/b].checks[0].pattern", "is not a field of row_count", false},
	"a check with a bad pattern":  {wrap("go: {}\noutput: {format: csv}\nchecks: [{type: regex, column: a, pattern: '('}]"), "assets[a/b].checks[0].pattern", "missing closing", false},
	"a check with a bad severity": {wrap("go: {}\noutput: {format: csv}\nchecks: [{type: row_count, min: 1, severity: error}]"), "assets[a/b].checks[0].severity", `"error" is not a severity`, true},
	"a check of another upstream": {wrap("go: {}\nchecks: [{type: row_count, min: 1, phase: PRE, input: a/c}]"), "assets[a/b].checks[0].input", "is not an upstream", false},
	"the same check twice":        {wrap("go: {}\noutput: {format: csv}\nchecks: [{type: unique, columns: [a]}, {type: unique, columns: [a]}]"), "assets[a/b].checks[1].name", `duplicate name "unique(a)"`, false},
	"a custom check of a command": {wrap("exec: {command: [a]}\noutput: {format: csv}\nchecks: [{type: custom}]"), "assets[a/b].checks[0].type", "needs a function", false},
	"quarantine without output":   {wrap("go: {}\nquarantine: true"), "assets[a/b].quarantine", "no output", false},
	"output of a call":            {wrap("http: {url: 'https://example.com'}\noutput: {format: csv}"), "assets[a/b].output", "cannot write files", false},
	"quarantine":                  {wrap("go: {}\noutput: {format: csv}\nchecks: [{type: row_count, min: 1}]\nquarantine: true"), "assets[a/b].quarantine", "not supported by this version", false},
	"a ratio":                     {wrap("go: {}\noutput: {format: csv}\nchecks: [{type: row_count, min_ratio: 0.5}]"), "assets[a/b].checks[0].min_ratio", "not supported by this version", false},
	"a secret of no provider":     {wrap("exec: {command: [a], env: {A: '${secret:nosuch:B}'}}"), "assets[a/b].exec.env.A", "unknown provider", false},
	"no SQL":                      {wrap("go: {}\noutput: {format: csv}\nchecks: [{type: custom_sql, sql: ' '}]"), "assets[a/b].checks[0].sql", "has 1 bytes", false},
	"quarantine without check":    {wrap("go: {}\noutput: {format: csv}\nquarantine: true"), "assets[a/b].quarantine", "no check is CRITICAL", false},
	"an unknown retry field":      {wrap("go: {}\nretry: {attempts: 3}"), "assets[a/b].retry.attempts", "unknown field", true},
	"no attempts":                 {wrap("go: {}\nretry: {max_attempts: 0}"), "assets[a/b].retry.max_attempts", "is 0, must be 1 to 100", true},
	"half an attempt":             {wrap("go: {}\nretry: {max_attempts: 1.5}"), "assets[a/b].retry.max_attempts", "whole number", true},
	"many attempts":               {wrap("go: {}\nretry: {max_attempts: 101}"), "assets[a/b].retry.max_attempts", "is 101, must be 1 to 100", true},
	"a shrinking delay":           {wrap("go: {}\nretry: {multiplier: 0.5}"), "assets[a/b].retry.multiplier", "is 0.5, must be 1 to 100", true},
	"a jitter of two":             {wrap("go: {}\nretry: {jitter: 2}"), "assets[a/b].retry.jitter", "is 2, must be 0.01 to 1", true},
	"a jitter of zero":            {wrap("go: {}\nretry: {jitter: 0}"), "assets[a/b].retry.jitter", "is 0, must be 0.01 to 1", true},
	"a great growth":              {wrap("go: {}\nretry: {timeout_growth: 11}"), "assets[a/b].retry.timeout_growth", "is 11, must be 1 to 10", true},
	"a maximum below":             {wrap("go: {}\nretry: {initial_delay: 2m, max_delay: 1m}"), "assets[a/b].retry.max_delay", "is 1m, less than initial_delay 2m", false},
	"a bad code":                  {wrap("go: {}\nretry: {retry_on: [busy]}"), "assets[a/b].retry.retry_on[0]", `"busy" is not a valid error code`, true},
	"a code in both lists":        {wrap("go: {}\nretry: {retry_on: [A], no_retry_on: [A]}"), "assets[a/b].retry.no_retry_on[0]", "is in retry_on too", false},
	"a pipeline, no name":         {"version: 1\nassets: [{key: a/b, go: {}}]\npipelines: [{priority: 1}]", "pipelines[0].name", "is missing", true},
	"a bad pipeline name":         {"version: 1\nassets: [{key: a/b, go: {}}]\npipelines: [{name: a/b}]", "pipelines[0].name", "is not a valid name", true},
	"duplicate pipelines":         {"version: 1\nassets: [{key: a/b, go: {}}]\npipelines: [{name: p}, {name: p}]", "pipelines[1].name", "duplicate name", false},
	"an unknown selection":        {pipe("select: [a/c]"), "pipelines[p].select[0]", "unknown asset a/c; did you mean a/b?", false},
	"an unknown tag":              {pipe("select: ['*', 'tag:dialy']"), "pipelines[p].select[1]", "no asset with tag dialy; did you mean daily?", false},
	"an unknown owner":            {pipe("select: ['owner:bob']"), "pipelines[p].select[0]", "no asset with owner bob", false},
	"an unknown namespace":        {pipe("select: ['b/*']"), "pipelines[p].select[0]", "no asset in namespace b; did you mean a?", false},
	"a strange selection":         {pipe("select: ['a*']"), "pipelines[p].select[0]", `"a*" is not a selection`, false},
	"an empty selection":          {pipe("select: []"), "pipelines[p].select", "is empty", true},
	"a selection of spaces":       {pipe("select: [' , ']"), "pipelines[p].select[0]", "is empty", true},
	"a priority of zero":          {pipe("priority: 0"), "pipelines[p].priority", "is 0, must be 1 to 10", true},
	"a priority of eleven":        {pipe("priority: 11"), "pipelines[p].priority", "is 11, must be 1 to 10", true},
	"an unknown overlap":          {pipe("overlap: skip"), "pipelines[p].overlap", `"skip" is not an overlap`, true},
	"a lock that is not taken":    {pipe("overlap: allow\nlock: {shared: true}"), "pipelines[p].lock", "overlap: allow uses no lock", false},
	"a lock by two rules":         {pipe("lock: {shared: true, key: workspace}"), "pipelines[p].lock", "has both key and shared", true},
	"an unknown field of a lock":  {pipe("lock: {keys: workspace}"), "pipelines[p].lock.keys", "unknown field", true},
	"a lock that is not CEL":      {pipe("lock: {key: 'workspace +'}"), "pipelines[p].lock.key", "column", false},
	"a lock of unknown names":     {pipe("lock: {key: tenant}"), "pipelines[p].lock.key", "undeclared reference to 'tenant'", false},
	"a lock that is a number":     {pipe("lock: {key: 1 + 1}"), "pipelines[p].lock.key", "returns int, not text", false},
	"a long lock":                 {pipe("lock: {key: '\"" + long(1000) + "\"'}"), "pipelines[p].lock.key", "has 1002 characters", true},
	"a long execution":            {pipe("max_execution: 169h"), "pipelines[p].max_execution", "is 169h, must be 1s to 168h", false},
	"a parameter, no type":        {pipe("parameters: [{name: x}]"), "pipelines[p].parameters[x].type", "is missing", true},
	"a parameter, no name":        {pipe("parameters: [{type: string}]"), "pipelines[p].parameters[0].name", "is missing", true},
	"a bad parameter name":        {pipe("parameters: [{name: X, type: string}]"), "pipelines[p].parameters[0].name", `"X" is not a valid name`, true},
	"a bad parameter type":        {pipe("parameters: [{name: x, type: strng}]"), "pipelines[p].parameters[x].type", `"strng" is not a type; did you mean string?`, true},
	"duplicate parameters":        {pipe("parameters: [{name: x, type: string}, {name: x, type: string}]"), "pipelines[p].parameters[1].name", "duplicate name", false},
	"a default of the wrong type": {pipe("parameters: [{name: x, type: integer, default: '1'}]"), "pipelines[p].parameters[x].default", "must be of type integer, is a string", true},
	"a fraction as integer":       {pipe("parameters: [{name: x, type: integer, default: 1.5}]"), "pipelines[p].parameters[x].default", "is a fraction", true},
	"an integer past 2^53":        {pipe("parameters: [{name: x, type: integer, default: 9007199254740993}]"), "pipelines[0].parameters[0].default", "cannot be kept exactly", true},
	"an integer of 2^53":          {pipe("parameters: [{name: x, type: integer, default: 9007199254740992}]"), "pipelines[p].parameters[x].default", "readers would round", true},
	"a decimal that is rounded":   {pipe("parameters: [{name: x, type: number, default: 0.1234567890123456789}]"), "pipelines[0].parameters[0].default", "cannot be kept exactly", false},
	"a required default":          {pipe("parameters: [{name: x, type: integer, default: 1, required: true}]"), "pipelines[p].parameters[x].default", "a required parameter cannot have a default", true},
	"required as text":            {pipe("parameters: [{name: x, type: integer, required: 'yes'}]"), "pipelines[p].parameters[x].required", "must be true or false, is a string", true},
	"an enum of booleans":         {pipe("parameters: [{name: x, type: boolean, enum: [true]}]"), "pipelines[p].parameters[x].enum", "cannot have an enum", true},
	"an empty enum":               {pipe("parameters: [{name: x, type: string, enum: []}]"), "pipelines[p].parameters[x].enum", "is empty", true},
	"an enum of the wrong type":   {pipe("parameters: [{name: x, type: string, enum: [1]}]"), "pipelines[p].parameters[x].enum[0]", "must be of type string, is a number", true},
	"a repeated enum":             {pipe("parameters: [{name: x, type: number, enum: [1, 1.0]}]"), "pipelines[p].parameters[x].enum[1]", "listed twice", true},
	"a default outside the enum":  {pipe("parameters: [{name: x, type: string, enum: [a], default: b}]"), "pipelines[p].parameters[x].default", "not a value of enum", false},
	"a null default":              {pipe("parameters: [{name: x, type: string, default: }]"), "pipelines[p].parameters[x].default", "must be of type string, is null", true},
	"NUL in a default":            {pipe("parameters: [{name: x, type: array, default: [{\"a\\0\": 1}]}]"), "pipelines[p].parameters[x].default", "NUL", false},
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()

	for name, c := range bad {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := asset.Parse([]byte(c.yaml), "servo.yaml")
			f, ok := fault.As(err)
			require.True(t, ok, "%v", err)
			require.Contains(t, []fault.Code{fault.InvalidManifest, fault.CycleDetected}, f.Code)
			require.Equal(t, c.field, f.Violation.Field)
			require.Contains(t, f.Message, c.message)
			require.NotEmpty(t, f.Violation.Remedy)
			require.Empty(t, f.Others, "one mistake is reported once")
		})
	}

	t.Run("all mistakes at once, in the order of the file", func(t *testing.T) {
		t.Parallel()
		_, err := asset.Parse([]byte(`
version: 1
assets:
  - {key: a/one, go: {}, timeout: 5, upstream: [a/two, a/tree]}
  - {key: a/three, go: {}, pol: x}
  - {key: a/two, upstream: [a/one]}
pipelines:
  - {name: p, select: [a/four], priority: 20}
`), "servo.yaml")
		f, ok := fault.As(err)
		require.True(t, ok)
		var messages []string
		for _, v := range f.Violations() {
			require.NotEmpty(t, v.Code)
			require.NotEmpty(t, v.Remedy)
			messages = append(messages, v.Field+": "+v.Message)
		}
		require.Equal(t, []string{
			"assets[a/one].timeout: must be a duration, is a number",
			"assets[a/three].pol: unknown field; did you mean pool?",
			"assets[a/two]: has no code",
			"assets[a/one].upstream[1]: unknown asset a/tree; did you mean a/three?",
			"assets[a/two].upstream: cycle: a/one → a/two → a/one",
			"pipelines[p].priority: is 20, must be 1 to 10",
			"pipelines[p].select[0]: unknown asset a/four",
		}, messages)
	})

	t.Run("of very many mistakes a hundred", func(t *testing.T) {
		t.Parallel()
		var yaml strings.Builder
		yaml.WriteString("version: 1\nassets:\n")
		for i := range 150 {
			fmt.Fprintf(&yaml, "  - {key: a/n%d, go: {}, upstream: [b/x%d]}\n", i, i)
		}
		_, err := asset.Parse([]byte(yaml.String()), "servo.yaml")
		f, ok := fault.As(err)
		require.True(t, ok)
		require.Len(t, f.Violations(), 101)
		require.Equal(t, "50 more errors are not shown", f.Violations()[100].Message)
	})
}

func TestParseLimits(t *testing.T) {
	t.Parallel()

	assets := func(n int) string {
		var yaml strings.Builder
		yaml.WriteString("version: 1\nassets:\n")
		for i := range n {
			fmt.Fprintf(&yaml, "- {key: a/n%d, go: {}}\n", i)
		}
		return yaml.String()
	}
	list := func(n int, format string) string {
		entries := make([]string, n)
		for i := range entries {
			entries[i] = strings.ReplaceAll(format, "%d", fmt.Sprint(i))
		}
		return strings.Join(entries, ", ")
	}
	for name, c := range map[string]struct{ yaml, field, message string }{
		"10,001 assets":      {assets(10_001), "assets", "has 10001 entries, the limit is 10000"},
		"1,001 pipelines":    {assets(1) + "pipelines: [" + list(1_001, "{name: p%d}") + "]", "pipelines", "limit is 1000"},
		"1,001 upstreams":    {assets(1_001) + "- {key: b/b, go: {}, upstream: [" + list(1_001, "a/n%d") + "]}", "assets[b/b].upstream", "limit is 1000"},
		"51 tags":            {wrap("go: {}\ntags: [" + list(51, "t%d") + "]"), "assets[a/b].tags", "limit is 50"},
		"21 owners":          {wrap("go: {}\nowners: [" + list(21, "o%d") + "]"), "assets[a/b].owners", "limit is 20"},
		"257 arguments":      {wrap("exec: {command: [" + list(257, "a%d") + "]}"), "assets[a/b].exec.command", "limit is 256"},
		"a long argument":    {wrap("exec: {command: [" + long(4_097) + "]}"), "assets[a/b].exec.command[0]", "has 4097 characters"},
		"257 variables":      {wrap("exec: {command: [a], env: {" + list(257, "V%d: x") + "}}"), "assets[a/b].exec.env", "limit is 256"},
		"a long variable":    {wrap("exec: {command: [a], env: {A: " + long(32_769) + "}}"), "assets[a/b].exec.env.A", "has 32769 characters"},
		"a long URL":         {wrap("http: {url: 'https://example.com/" + long(2_048) + "'}"), "assets[a/b].http.url", "the limit is 2048"},
		"65 headers":         {wrap("http: {url: 'https://example.com', headers: {" + list(65, "h%d: x") + "}}"), "assets[a/b].http.headers", "limit is 64"},
		"101 codes":          {wrap("go: {}\nretry: {retry_on: [" + list(101, "C%d") + "]}"), "assets[a/b].retry.retry_on", "limit is 100"},
		"101 parameters":     {pipe("parameters: [" + list(101, "{name: p%d, type: string}") + "]"), "pipelines[p].parameters", "limit is 100"},
		"101 enum values":    {pipe("parameters: [{name: x, type: integer, enum: [" + list(101, "%d") + "]}]"), "pipelines[p].parameters[x].enum", "limit is 100"},
		"1,001 selections":   {pipe("select: [" + list(1_001, "a/b%d") + "]"), "pipelines[p].select", "limit is 1000"},
		"a long selection":   {pipe("select: [" + long(1_001) + "]"), "pipelines[p].select[0]", "limit is 1000"},
		"64 KB of defaults":  {pipe("parameters: [{name: x, type: string, default: " + long(64<<10) + "}]"), "pipelines[p].parameters", "the limit is 65536"},
		"101 levels of YAML": {"version: " + strings.Repeat("[", 101) + strings.Repeat("]", 101), "", "deeper than 100 levels"},
		"an alias in itself": {"version: &a [*a]", "version[0][0]", "contains itself"},
		"a merge key":        {"version: 1\nassets:\n- &a {key: a/b, go: {}}\n- {<<: *a}", "assets[1]", "merge keys"},
		"two documents":      {"version: 1\n---\nversion: 1", "servo.yaml", "more than one YAML document"},
		"a YAML tag":         {"version: !!binary aGk=", "version", "tag"},
		"a tag on a list":    {"version: 1\nassets: !x []", "assets", "tag"},
		"a YAML infinity":    {"version: .inf", "version", "not a JSON number"},
		"a number as key":    {"1: 2", "", "a key must be a string"},
		"a key twice":        {"version: 1\nversion: 1", "", `duplicate key "version"`},
		"broken YAML":        {"version: [", "servo.yaml", "is not YAML"},
		"an empty file":      {"# nothing\n", "servo.yaml", "the file is empty"},
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			t.Parallel()
			_, err := asset.Parse([]byte(c.yaml), "servo.yaml")
			f, ok := fault.As(err)
			require.True(t, ok, "%v", err)
			require.Equal(t, fault.InvalidManifest, f.Code)
			if c.field != "" {
				require.Equal(t, c.field, f.Violation.Field)
			}
			require.Contains(t, f.Message, c.message)
			require.NotEmpty(t, f.Violation.Remedy)
		})
	}

	t.Run("the largest list of assets passes", func(t *testing.T) {
		t.Parallel()
		require.Len(t, parse(t, assets(10_000)).Assets, 10_000)
	})

	t.Run("an alias bomb is refused before it is built", func(t *testing.T) {
		t.Parallel()
		bomb := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
		for i := 1; i < 20; i++ {
			bomb += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
		}
		_, err := asset.Parse([]byte(bomb), "servo.yaml")
		require.True(t, fault.Is(err, fault.LimitExceeded), "%v", err)
	})

	t.Run("aliases count as often as they are used", func(t *testing.T) {
		t.Parallel()
		thousand := "a: &a [" + list(999, "%d") + "]\nb: ["
		_, err := asset.Parse([]byte(thousand+list(990, "*a")+"]"), "servo.yaml")
		require.True(t, fault.Is(err, fault.InvalidManifest), "%v", err) // read, and then not a manifest
		_, err = asset.Parse([]byte(thousand+list(1010, "*a")+"]"), "servo.yaml")
		require.True(t, fault.Is(err, fault.LimitExceeded), "%v", err)
	})

	t.Run("a document of too many values is refused", func(t *testing.T) {
		t.Parallel()
		_, err := asset.Parse([]byte("["+strings.Repeat("1,", 1_000_000)+"1]"), "servo.json")
		require.True(t, fault.Is(err, fault.LimitExceeded), "%v", err)
	})

	t.Run("a file over the size limit is refused unread", func(t *testing.T) {
		t.Parallel()
		_, err := asset.Parse(make([]byte, asset.MaxBytes+1), "servo.yaml")
		require.True(t, fault.Is(err, fault.LimitExceeded))
	})

	t.Run("a request carries one mebibyte", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, asset.CheckInline(make([]byte, 1<<20)))
		require.True(t, fault.Is(asset.CheckInline(make([]byte, 1<<20+1)), fault.LimitExceeded))
	})
}

func TestParseJSON(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct{ json, field, message string }{
		"a duplicate key":  {`{"version":1,"version":1}`, "version", "duplicate"},
		"a lone surrogate": {`{"version":"\ud800"}`, "version", "lone surrogate"},
		"trailing data":    {`{} x`, "", "after the end"},
		"a YAML comment":   {"# hi\n{}", "", "expected a value"},
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			t.Parallel()
			_, err := asset.Parse([]byte(c.json), "servo.json")
			f, ok := fault.As(err)
			require.True(t, ok)
			require.Equal(t, fault.InvalidManifest, f.Code)
			require.Equal(t, c.field, f.Violation.Field)
			require.Contains(t, f.Message, c.message)
		})
	}
}
