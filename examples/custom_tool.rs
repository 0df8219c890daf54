                Err(stopped) => ToolOutcome::Failed(segue::ToolFailure {
                    wants: Vec::new(),
                    kind: segue::FailureKind::Timeout,
                    message: stopped.to_string(),
                    fatal: false,
                }),
            }
        })
    }
}
