//! The mutants: bugs that somebody could write, one line or two each. They stand for whole families: rows of bugs that
//! reached people elsewhere, and what is easily forgotten while moving frames.

/// One seeded bug.
pub struct Mutant {
    /// Short, for the table and for `--only`.
    pub name: &'static str,
    /// From the engine's folder.
    pub file: &'static str,
    /// Occurs exactly once in the file.
    pub find: &'static str,
    /// Takes its place.
    pub put: &'static str,
    /// What people would notice.
    pub breaks: &'static str,
}

const fn mutant(
    name: &'static str,
    file: &'static str,
    find: &'static str,
    put: &'static str,
    breaks: &'static str,
) -> Mutant {
    Mutant { name, file, find, put, breaks }
}

/// All of them, by room.
pub const MUTANTS: &[Mutant] = &[
    // ---- commands and cleaning ----
    mutant(
        "forced-any-slot",
        "src/dialogue/clean.rs",
        "matches!(&command, Command::SetSlot { name, .. } if *name == collect.slot)",
        "matches!(&command, Command::SetSlot { .. })",
        "a question that takes nothing but its answer takes other values",
    ),
    mutant(
        "order-not-turned",
        "src/dialogue/clean.rs",
        "    kept.reverse();\n",
        "",
        "of two flows in one message the second is asked first, and small talk is answered last",
    ),
    mutant(
        "cancel-waits",
        "src/dialogue/clean.rs",
        "Command::CancelFlow => 0,",
        "Command::CancelFlow => 3,",
        "`stop` waits until the flow that the same message starts has ended",
    ),
    mutant(
        "agent-not-continued",
        "src/dialogue/clean.rs",
        "    if kept.iter().all(only_fills) {",
        "    if false && kept.iter().all(only_fills) {",
        "an agent that waits does not hear what the user says",
    ),
    mutant(
        "filled-twice",
        "src/dialogue/commands/set_slot.rs",
        "    if is_set {\n",
        "    if false && is_set {\n",
        "a message fills one slot twice, and the last value wins",
    ),
    mutant(
        "anything-is-filled",
        "src/dialogue/commands/set_slot.rs",
        "    if !asked_for {\n",
        "    if false && !asked_for {\n",
        "buttons and models set slots that nobody asks for",
    ),
    mutant(
        "mappings-ignored",
        "src/dialogue/commands/set_slot.rs",
        "    if !may_fill(turn, scene, name, by, all) {",
        "    if false && !may_fill(turn, scene, name, by, all) {",
        "the model fills slots that only actions may fill",
    ),
    mutant(
        "correction-is-a-set",
        "src/dialogue/commands/set_slot.rs",
        "    if !eligible || scene.asked",
        "    if eligible || scene.asked",
        "a changed answer is set without going back",
    ),
    mutant(
        "guard-ignored",
        "src/dialogue/commands/start_flow.rs",
        "!turn.holds(guard)",
        "turn.holds(guard) && !turn.holds(guard)",
        "flows start though their guard does not hold",
    ),
    mutant(
        "one-clarification-starts",
        "src/dialogue/commands/clarify.rs",
        "            Verdict::Drop(rule) => Verdict::Drop(rule),\n",
        "",
        "a question with one option starts a flow that may not start, or is under way",
    ),
    mutant(
        "silence-for-nothing",
        "src/dialogue/commands/mod.rs",
        "    if turn.stack.is_empty() && !silent {",
        "    if false && turn.stack.is_empty() && !silent {",
        "a message that leads to nothing gets no answer",
    ),
    mutant(
        "check-forgotten",
        "src/dialogue/commands/set_slot.rs",
        "    validated.push(name);\n",
        "    let _ = (validated, name);\n",
        "a slot's own check is not made when a message fills it",
    ),
    // ---- corrections ----
    mutant(
        "corrected-step-skipped",
        "src/dialogue/patterns/correction.rs",
        "            frame.at = Position::Before(step);\n",
        "            frame.at = Position::At(step);\n",
        "a corrected answer is not looked at by its question",
    ),
    mutant(
        "answer-unchecked",
        "src/dialogue/commands/correct_slots.rs",
        ".chain(answered)",
        "",
        "answer and correction in one message: the answer is not checked (fixed elsewhere only in 3.16.2)",
    ),
    mutant(
        "back-to-the-latest",
        "src/dialogue/patterns/correction.rs",
        "frame.trail.iter().find(|step|",
        "frame.trail.iter().rev().find(|step|",
        "of two corrected answers only the later one is looked at again",
    ),
    mutant(
        "corrected-value-unchecked",
        "src/dialogue/patterns/correction.rs",
        "    commands::push_validations(turn, &names);\n",
        "",
        "a corrected slot with a check of its own is not checked",
    ),
    mutant(
        "correction-hits-the-wrong-flow",
        "src/dialogue/patterns/correction.rs",
        "let above: Vec<Frame> = turn.stack.drain(at + 1..end).collect();",
        "let above: Vec<Frame> = turn.stack.drain(at + 1..).collect();\n        let _ = end;",
        "a correction takes down the flow that the same message started",
    ),
    mutant(
        "trail-not-cut",
        "src/dialogue/patterns/correction.rs",
        "                frame.trail.truncate(visited);\n",
        "                let _ = visited;\n",
        "the trail still holds questions that the flow went back before",
    ),
    // ---- cancel ----
    mutant(
        "cancelled-goes-on",
        "src/dialogue/patterns/cancel.rs",
        "    turn.let_end(|frame| canceled.contains(&frame.frame_id));\n",
        "",
        "the flow that was stopped goes on",
    ),
    mutant(
        "cancels-too-much",
        "src/dialogue/commands/cancel_flow.rs",
        "turn.stack.get(interrupt::chain(&turn.stack, base))",
        "turn.stack.get(base..)",
        "`stop` also stops what the same message starts",
    ),
    mutant(
        "cancelled-keeps-values",
        "src/dialogue/ending.rs",
        "            _ => reset_slots(self, frame, project.flow(flow_id.as_str()).map(|flow| &**flow)),\n",
        "            _ => {}\n",
        "answers of a flow that was taken down are there the next time",
    ),
    // ---- interruption ----
    mutant(
        "chain-without-end",
        "src/dialogue/interrupt.rs",
        "    base..above.map_or(frames.len(), |(at, _)| at)",
        "    let _ = above;\n    base..frames.len()",
        "a flow takes everything above it along",
    ),
    mutant(
        "resumed-is-no-interrupt",
        "src/dialogue/interrupt.rs",
        "        *frame_type = FlowFrameType::Interrupt;\n",
        "        let _ = frame_type;\n",
        "after a flow that was resumed nobody asks about the other",
    ),
    mutant(
        "nobody-steps-aside",
        "src/dialogue/interrupt.rs",
        "    if interrupts {\n        step_aside(turn);",
        "    if false && interrupts {\n        step_aside(turn);",
        "a digression does not interrupt: no event, and the agent below goes on waiting",
    ),
    mutant(
        "question-stays",
        "src/dialogue/interrupt.rs",
        "    leave_questions(turn);\n    if let Some(chain)",
        "    if let Some(chain)",
        "the question what to go on with stays when the user has said it",
    ),
    mutant(
        "started-twice",
        "src/dialogue/interrupt.rs",
        "    if let Some(chain) = chain_of(&turn.stack, flow) {",
        "    if let Some(chain) = chain_of(&turn.stack, flow).filter(|_| false) {",
        "a flow that lies below is started once more instead of being resumed",
    ),
    mutant(
        "linked-is-invisible",
        "src/dialogue/ending.rs",
        "matches!(frame_type, FlowFrameType::Interrupt | FlowFrameType::Link)",
        "matches!(frame_type, FlowFrameType::Interrupt)",
        "after a linked flow nothing that was interrupted is offered",
    ),
    mutant(
        "pattern-lies-on",
        "src/dialogue/patterns/continue_interrupted.rs",
        "        turn.take_down(&pattern, \"the user went on\");\n",
        "        let _ = pattern;\n",
        "the question what to go on with never ends in the books, and its answer stays",
    ),
    mutant(
        "gives-up-one-of-two",
        "src/dialogue/patterns/continue_interrupted.rs",
        "        while let Some(chain)",
        "        if let Some(chain)",
        "a flow that lies on the stack twice is given up once",
    ),
    // ---- questions ----
    mutant(
        "never-asked-anew",
        "src/dialogue/collect.rs",
        "    if collect.ask_before_filling {\n",
        "    if false && collect.ask_before_filling {\n",
        "a question that is always asked is passed when its slot is filled",
    ),
    mutant(
        "step-not-remembered",
        "src/dialogue/collect.rs",
        "    turn.remember_step();\n    if !can_ask",
        "    if !can_ask",
        "corrections find nothing to go back to",
    ),
    mutant(
        "cut-question-waits",
        "src/dialogue/collect.rs",
        "        top.at = Position::Before(first.id.clone());\n",
        "        let _ = (top, first);\n",
        "after a turn that was cut the answer is not looked at, and the user hears nothing",
    ),
    // ---- rejections ----
    mutant(
        "nothing-is-rejected",
        "src/dialogue/rejections.rs",
        "    for rejection in rejections {",
        "    for rejection in rejections.iter().take(0) {",
        "refused values pass",
    ),
    mutant(
        "misfits-pass",
        "src/dialogue/rejections.rs",
        "    if !is_valid(kind, &value)\n",
        "    if false && !is_valid(kind, &value)\n",
        "`maybe` passes for yes or no",
    ),
    mutant(
        "refused-stays",
        "src/dialogue/rejections.rs",
        "    change(turn, slot, Json::Null);\n}",
        "    let _ = slot;\n}",
        "a refused value stays in its slot",
    ),
    // ---- slots at the end of flows ----
    mutant(
        "persisted-is-reset",
        "src/dialogue/ending.rs",
        "let stays = !collect.reset_after_flow_ends || flow.persisted_slots.contains(&collect.slot);",
        "let stays = !collect.reset_after_flow_ends;",
        "slots that persist are emptied at the end of their flow",
    ),
    mutant(
        "called-slots-stay",
        "src/dialogue/ending.rs",
        "            each_step(project, child, seen, visit);\n",
        "            let _ = child;\n",
        "answers that a called flow took outlive the flow that called it",
    ),
    mutant(
        "call-resets",
        "src/dialogue/ending.rs",
        "                } else {\n                    reset_slots(",
        "                }\n                {\n                    reset_slots(",
        "a called flow empties its slots when it ends, not with the flow that called it",
    ),
    mutant(
        "link-above",
        "src/dialogue/flow.rs",
        "        self.stack.insert(under_way.map_or(0, |at| at + 1), frame);\n",
        "        let _ = under_way;\n        self.stack.push(frame);\n",
        "a linked flow begins before the one that links has ended",
    ),
    // ---- failures and limits ----
    mutant(
        "failed-flow-stays",
        "src/dialogue/ending.rs",
        "        interrupt::remove_chain(self, because);\n",
        "",
        "a flow that failed goes on",
    ),
    mutant(
        "no-breaker",
        "src/dialogue/flow.rs",
        "let too_much = self.steps > limits::FLOW_STEPS || self.conversation().turn.acts > limits::TURN_ACTS;",
        "let too_much = self.steps > 20_000 || self.conversation().turn.acts > limits::TURN_ACTS;",
        "a flow that runs in circles keeps the user waiting",
    ),
    mutant(
        "frames-share-ids",
        "src/dialogue/turn.rs",
        "        self.next_frame += 1;\n",
        "",
        "frames share one id: cancelling one ends the others",
    ),
    // ---- the fold and what is stored ----
    mutant(
        "reset-counts-as-set",
        "src/conversation/slots.rs",
        "SlotState { value: value.clone(), filled_by: None, has_been_set: false }",
        "SlotState { value: value.clone(), filled_by: None, has_been_set: true }",
        "the first answer after a reset counts as a correction",
    ),
    mutant(
        "session-keeps-agents",
        "src/conversation/mod.rs",
        "                self.history.clear();\n                self.agents.clear();\n",
        "                self.history.clear();\n",
        "a new session remembers what agents did in the last one",
    ),
    mutant(
        "restart-reuses-ids",
        "src/conversation/mod.rs",
        "*self = Self { events, turns, next_frame: frame, turn: self.turn, ..Self::new(id) };",
        "let _ = frame;\n                *self = Self { events, turns, turn: self.turn, ..Self::new(id) };",
        "after a restart frames get ids that were given before",
    ),
    mutant(
        "trail-not-stored",
        "src/conversation/stack.rs",
        "    #[serde(default, skip_serializing_if = \"Vec::is_empty\")]\n    pub trail: Vec<StepId>,",
        "    #[serde(skip)]\n    pub trail: Vec<StepId>,",
        "after a restart of the program corrections do not go back any more",
    ),
    mutant(
        "reset-not-stored",
        "src/conversation/event.rs",
        "        #[serde(default, skip_serializing_if = \"std::ops::Not::not\")]\n        reset: bool,",
        "        #[serde(skip)]\n        reset: bool,",
        "what was reset counts as set once it was read from the store",
    ),
    mutant(
        "record-of-another",
        "src/conversation/codec.rs",
        "bytes(step(bytes(0xcbf2_9ce4_8422_2325, owner.as_bytes()), number), body)",
        "bytes(step(bytes(0xcbf2_9ce4_8422_2325, owner.as_bytes()), 0 * number), body)",
        "a record in the wrong place is read as if nothing were wrong",
    ),
    // ---- agents ----
    mutant(
        "resumed-untold",
        "src/dialogue/agent_frame.rs",
        "            turn.emit_here(EventKind::AgentResumed { flow_id, agent_id });\n",
        "            let _ = (flow_id, agent_id);\n",
        "an agent goes on and no event says so",
    ),
    mutant(
        "agent-forgets",
        "src/dialogue/agent_frame.rs",
        "        frame.metadata = metadata;\n        return;",
        "        let _ = metadata;\n        return;",
        "an agent does not find again what it left",
    ),
    mutant(
        "finished-agent-stays",
        "src/dialogue/agent_frame.rs",
        "                turn.stack.pop();\n            }\n            turn.walk()",
        "                turn.stack.len();\n            }\n            turn.walk()",
        "an agent that has finished goes on waiting",
    ),
    mutant(
        "agent-cut-untold",
        "src/dialogue/ending.rs",
        "    agent_frame::give_up(turn, &reason);\n",
        "",
        "a task that the budget cut short never ends in the books",
    ),
    mutant(
        "exit-slots-stay",
        "src/dialogue/agent_frame.rs",
        "    if restarted {\n        for slot in exit_slots",
        "    if false && restarted {\n        for slot in exit_slots",
        "an agent that begins anew finds its task done",
    ),
    mutant(
        "restart-in-the-wrong-flow",
        "src/dialogue/agent_frame.rs",
        "        turn.stack.insert(chain.end, frame);\n",
        "        turn.stack.push(frame);\n",
        "an agent begins anew on top of a flow that does not call it",
    ),
    mutant(
        "agent-interrupted-twice",
        "src/dialogue/interrupt.rs",
        "            AgentState::Resuming => agent.state = AgentState::Interrupted,\n",
        "            AgentState::Resuming => {\n                agent.state = AgentState::Interrupted;\n                interrupted.push((frame.flow_id.clone(), agent.agent_id.clone()));\n            }\n",
        "an agent is interrupted twice and resumed once",
    ),
];
