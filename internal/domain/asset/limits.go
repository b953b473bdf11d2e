package asset

import (
	"regexp"
	"time"
)

// The limits of a manifest. docs/manifest.md lists them, and the published schema states the same
// wherever a schema can.
const (
	MaxInlineBytes = 1 << 20   // of a manifest as JSON inside a request; a larger one is sent compressed
	MaxBytes       = 16 << 20  // of any manifest
	MaxNodes       = 1_000_000 // values in a manifest once its YAML aliases are followed

	MaxAssets    = 10_000
	MaxPipelines = 1_000
	MaxUpstream  = 1_000
	MaxTags      = 50
	MaxOwners    = 20

	MaxCommand      = 256 // arguments
	MaxArgument     = 4_096
	MaxEnv          = 256
	MaxEnvValue     = 32_768
	MaxURL          = 2_048
	MaxHeaders      = 64
	MaxHeaderValue  = 4_096
	MaxDescription  = 4_096
	MaxRetryCodes   = 100
	MaxParameters   = 100
	MaxEnum         = 100
	MaxSelect       = 1_000
	MaxSelectLength = 1_000

	// MaxParameterBytes bounds the parameters of one run in canonical form, and therefore the defaults
	// of a pipeline.
	MaxParameterBytes = 64 << 10

	// maxViolations is how many errors are reported at once.
	maxViolations = 100
)

// Ranges of times and numbers, both ends included.
const (
	minTimeout      = Duration(time.Second)
	maxTimeout      = Duration(24 * time.Hour)
	minMaxExecution = Duration(time.Second)
	maxMaxExecution = Duration(7 * 24 * time.Hour)
	minDelay        = Duration(time.Millisecond)
	// DefaultMaxDelay bounds the delay of a retry whose policy sets no max_delay.
	DefaultMaxDelay  = Duration(time.Hour)
	maxInitialDelay  = Duration(24 * time.Hour)
	maxMaxDelay      = Duration(7 * 24 * time.Hour)
	maxAttempts      = 100
	maxMultiplier    = 100
	minJitter        = 0.01
	maxTimeoutGrowth = 10
	minPriority      = 1
	maxPriority      = 10

	// maxSafeInteger is the largest integer that every JSON reader keeps exactly.
	maxSafeInteger = 1<<53 - 1
)

// The syntax of names. Keys become paths in blob stores and words of the selection language, so
// their alphabet is small.
var (
	keyPattern       = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,99}/[a-z0-9][a-z0-9_.-]{0,99}$`)
	namePattern      = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,99}$`)
	tagPattern       = regexp.MustCompile(`^[a-z0-9][a-z0-9_.:-]{0,62}$`)
	ownerPattern     = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.@+/-]{0,98}[A-Za-z0-9])?$`)
	parameterPattern = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)
	envPattern       = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	headerPattern    = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$")
	codePattern      = regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,99}$`)
	functionPattern  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]{0,199}:[A-Za-z_][A-Za-z0-9_.<>]{0,199}$`)
	digestPattern    = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	handlerPattern   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_./-]{0,199}$`)
)
